package memory_test

import (
	"testing"
	"time"

	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/memory"
	"millrace/control/cluster/internal/store/storetest"
)

type backend struct{ *memory.Server }

type link struct{ *memory.Client }

func (l link) Cut()         { l.SetLink(memory.Cut) }
func (l link) Freeze()      { l.SetLink(memory.Frozen) }
func (l link) LoseAnswers() { l.SetLink(memory.LosesAnswers) }
func (l link) Heal()        { l.SetLink(memory.Works) }

func (b backend) Open(t *testing.T) (store.Store, storetest.Link) {
	client := b.Server.Open()
	t.Cleanup(func() { _ = client.Close() })
	return client, link{client}
}
func (b backend) Forget(*testing.T)                       {}
func (b backend) Expire(_ *testing.T, client store.Store) { client.(*memory.Client).Expire() }

func TestStore(t *testing.T) { storetest.Run(t, backend{memory.NewServer()}) }

func TestCluster(t *testing.T) { storetest.RunCluster(t, aging{memory.NewServer()}) }

// aging ends the session of a client half a second after its link is cut.
type aging struct{ *memory.Server }

type agingLink struct{ link }

func (l agingLink) Cut() {
	l.link.Cut()
	time.AfterFunc(500*time.Millisecond, l.Expire)
}

func (b aging) Open(t *testing.T) (store.Store, storetest.Link) {
	client, is := backend(b).Open(t)
	return client, agingLink{is.(link)}
}
func (b aging) Forget(*testing.T)              {}
func (b aging) Expire(*testing.T, store.Store) {}
