package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/control/internal/apitest"
)

// capture returns a pcapng file with a section, an interface and `packets` packets, in the byte order `order`.
func capture(order binary.ByteOrder, packets int) []byte {
	var out bytes.Buffer
	block := func(kind uint32, body ...uint32) {
		length := uint32(12 + 4*len(body))
		binary.Write(&out, order, kind)
		binary.Write(&out, order, length)
		binary.Write(&out, order, body)
		binary.Write(&out, order, length)
	}
	block(sectionHeader, byteOrderMagic, 1, 0xffffffff, 0xffffffff)
	block(1, 1, 65535)
	for n := 0; n < packets; n++ {
		block(enhancedPacket, 0, 0, uint32(n), 4, 4, 0xdeadbeef)
	}
	return out.Bytes()
}

func TestTrace(t *testing.T) {
	server := apitest.New(t)
	file := filepath.Join(t.TempDir(), "t.pcapng")
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		sent := capture(order, 3)
		server.On("GET /trace", apitest.Text(200, string(sent)))
		expect(t, run(t, server.Socket, "trace", "--protocol", "udp", "-w", file), result{done, "3 packets in " + file + "\n", ""})
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%v: %v, %d bytes of %d", order, err, len(got), len(sent))
		}
		expect(t, run(t, server.Socket, "trace", "--packets=5", "--seconds=2"), result{done, string(sent), ""})
	}
	for i, want := range []string{"packets=1000&protocol=udp&seconds=10", "packets=5&seconds=2"} {
		if got := server.Asked()[i].Query.Encode(); got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
}

func TestLostPackets(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		var statistics bytes.Buffer
		for _, word := range []any{uint32(5), uint32(40), uint32(0), uint32(0), uint32(0), uint16(5), uint16(8),
			uint64(70_000), uint32(0), uint32(40)} {
			binary.Write(&statistics, order, word)
		}
		var out bytes.Buffer
		packets, lost, err := copyBlocks(&out, bytes.NewReader(append(capture(order, 3), statistics.Bytes()...)))
		if packets != 3 || lost != 70_000 || err != nil {
			t.Errorf("%v: %d packets, %d lost, %v", order, packets, lost, err)
		}
	}
}

// Wherever the stream is cut, only whole blocks are written. A cut within a block is an error.
func TestCutCaptures(t *testing.T) {
	whole := capture(binary.LittleEndian, 2)
	ends := map[int]bool{0: true, 28: true, 48: true, 84: true, 120: true}
	for cut := 0; cut <= len(whole); cut++ {
		var out bytes.Buffer
		_, _, err := copyBlocks(&out, bytes.NewReader(whole[:cut]))
		if !ends[out.Len()] || (err == nil) != ends[cut] || cut-out.Len() >= 36 {
			t.Errorf("cut at %d: %d bytes, %v", cut, out.Len(), err)
		}
	}
}

func TestWhatIsNoCapture(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	for i := 0; i < 2000; i++ {
		text := make([]byte, random.Intn(200))
		random.Read(text)
		if len(text) >= 8 {
			binary.LittleEndian.PutUint32(text[4:], uint32(random.Intn(80)))
		}
		var out bytes.Buffer
		copyBlocks(&out, bytes.NewReader(text)) // must end, and write only bytes that it has read
		if !bytes.HasPrefix(text, out.Bytes()) {
			t.Fatalf("%x became %x", text, out.Bytes())
		}
	}
	server := apitest.New(t)
	server.On("GET /trace", apitest.Text(200, "this is no capture at all"))
	expect(t, run(t, server.Socket, "trace"),
		result{failed, "", "millctl: the answer is no pcapng: a block of 544434464 bytes\n"})
}

func TestTraceLeavesTheFileAlone(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /trace", apitest.Text(400, `{"error": "source: no address"}`))
	file := filepath.Join(t.TempDir(), "t.pcapng")
	os.WriteFile(file, []byte("mine"), 0o600)
	expect(t, run(t, server.Socket, "trace", "-w", file), result{wrongUsage, "", "millctl: source: no address\n"})
	if got, _ := os.ReadFile(file); string(got) != "mine" {
		t.Errorf("the file is %q", got)
	}
	server.On("GET /trace", apitest.Text(200, string(capture(binary.LittleEndian, 0))))
	nowhere := filepath.Join(file, "x")
	expect(t, run(t, server.Socket, "trace", "-w", nowhere), result{unopened, "", "millctl: open " + nowhere + ": not a directory\n"})
}

// After Ctrl-C the output is a valid capture.
func TestTraceInterrupted(t *testing.T) {
	server := apitest.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	sent := capture(binary.LittleEndian, 2)
	half := 100 // within the second packet
	server.On("GET /trace", func(w http.ResponseWriter, r *http.Request) {
		w.Write(sent[:half])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	out := &until{length: 84, then: cancel}
	status := Run(ctx, []string{"trace", "--socket", server.Socket}, out, os.Stderr)
	if status != interrupted || !bytes.Equal(out.Bytes(), sent[:84]) {
		t.Errorf("status %d, %d bytes", status, out.Len())
	}
}

// until calls `then` after each write, once at least `length` bytes were written.
type until struct {
	bytes.Buffer
	length int
	then   func()
}

func (u *until) Write(text []byte) (int, error) {
	defer func() {
		if u.Len() >= u.length {
			u.then()
		}
	}()
	return u.Buffer.Write(text)
}
