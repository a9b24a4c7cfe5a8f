package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/control/internal/apitest"
)

// fakeUnits stands in for systemd by a program systemctl, which keeps the states of units in files.
type fakeUnits struct {
	t      *testing.T
	folder string
}

// systemctl is the source of the program systemctl. Each unit has a file of properties; the commands
// "start", "enable", ... run the script in the file with the command's name, if there is one.
const systemctl = `#!/bin/sh
cd "$UNITS" || exit 1
[ "$1" = --no-ask-password ] || exit 1
shift
if [ "$1" = show ]; then cat "$3"; exit; fi
echo "$1 $2" >>asked
[ ! -e "$1" ] || . "./$1"
`

// journalctl is the source of a program that prints the journal of invocation f00d, and no other.
const journalctl = `#!/bin/sh
cd "$UNITS" || exit 1
for argument in "$@"; do
  if [ "$argument" = _SYSTEMD_INVOCATION_ID=f00d ]; then cat journal; fi
done
`

func newUnits(t *testing.T) fakeUnits {
	u := fakeUnits{t, t.TempDir()}
	u.write("systemctl", systemctl)
	u.write("journalctl", journalctl)
	t.Setenv("UNITS", u.folder)
	t.Setenv("PATH", u.folder+":"+os.Getenv("PATH"))
	return u
}

func (u fakeUnits) write(name, text string) {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.folder, name), []byte(text), 0o755); err != nil {
		u.t.Fatal(err)
	}
}

func (u fakeUnits) asked() string {
	text, _ := os.ReadFile(filepath.Join(u.folder, "asked"))
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
}

func state(active string, pid int, file string) string {
	return fmt.Sprintf("LoadState=loaded\nActiveState=%s\nUnitFileState=%s\nMainPID=%d\nResult=%s\n", active, file, pid,
		map[string]string{"failed": "exit-code", "activating": "exit-code"}[active])
}

// runs makes a unit run. Its process id is that of the test, which listens at the control socket.
func (u fakeUnits) runs(name, file string) {
	u.write(name+".service", state("active", os.Getpid(), file))
}
func (u fakeUnits) rests(name string) { u.write(name+".service", state("inactive", 0, "disabled")) }

func becomes(name, text string) string {
	return fmt.Sprintf("printf '%%s' '%s' >%s.service\n", text, name)
}

func TestUpgrade(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /stats", apitest.Text(200, `{"version": "0.2.0", "connections": {"live": 1234, "taken_over": 1}}`))
	serves := state("active", os.Getpid(), "disabled")
	ended := state("inactive", 0, "enabled")
	for _, c := range []struct {
		name     string
		from, to string
		file     string // "enabled" or "disabled", of the old unit
		start    string // the script that "systemctl start" runs
		want     result
		asked    string
	}{
		{"from a to b", "millrace@a", "millrace@b", "enabled",
			becomes("millrace@b", serves) + becomes("millrace@a", ended), result{done,
				"millrace@a runs (0.2.0), with 1,234 connections\nstarting millrace@b, which takes over\n" +
					"millrace@b has taken over 1 connection (0.2.0)\nmillrace@a has ended\n" +
					"millrace@b starts at boot, in place of millrace@a\n", ""},
			"start millrace@b.service, enable millrace@b.service, disable millrace@a.service"},
		{"from b to a, and a little later", "millrace@b", "millrace@a", "disabled",
			becomes("millrace@a", serves) + "(sleep 0.3\n" + becomes("millrace@b", ended) + ") >/dev/null 2>&1 &\n", result{done,
				"millrace@b runs (0.2.0), with 1,234 connections\nstarting millrace@a, which takes over\n" +
					"millrace@a has taken over 1 connection (0.2.0)\nmillrace@b has ended\n" +
					"neither unit starts at boot: systemctl enable millrace@a\n", ""},
			"start millrace@a.service"},
		{"it does not start", "millrace@a", "millrace@b", "enabled",
			becomes("millrace@b", state("failed", 0, "disabled")) + "echo 'Job for millrace@b.service failed.' >&2\necho more >&2\nexit 1\n",
			result{failed, "millrace@a runs (0.2.0), with 1,234 connections\nstarting millrace@b, which takes over\n",
				"millctl: millrace@b did not take over: systemctl: Job for millrace@b.service failed.\n" +
					"millctl: journalctl -u millrace@b says why; millrace@a goes on\n"},
			"start millrace@b.service, stop millrace@b.service"},
		{"the other one starts at boot already", "millrace@a", "millrace@b", "disabled",
			becomes("millrace@b", state("active", os.Getpid(), "enabled")) + becomes("millrace@a", state("inactive", 0, "disabled")),
			result{done, "millrace@a runs (0.2.0), with 1,234 connections\nstarting millrace@b, which takes over\n" +
				"millrace@b has taken over 1 connection (0.2.0)\nmillrace@a has ended\nmillrace@b starts at boot\n", ""},
			"start millrace@b.service"},
		{"it does not start, and has said why", "millrace@a", "millrace@b", "enabled",
			becomes("millrace@b", state("failed", 0, "disabled")+"InvocationID=f00d\n") +
				"printf 'millrace: warning: small pages\\nmillrace: f.toml:1: workers: give 1 to 128\\nmillrace: f.toml:2: unknown key\\nmore\\n' >journal\nexit 1\n",
			result{failed, "millrace@a runs (0.2.0), with 1,234 connections\nstarting millrace@b, which takes over\n",
				"millctl: millrace@b did not take over: f.toml:1: workers: give 1 to 128\nmillctl: f.toml:2: unknown key\n" +
					"millctl: journalctl -u millrace@b says more; millrace@a goes on\n"},
			"start millrace@b.service, stop millrace@b.service"},
		{"it starts, and ends before it takes over", "millrace@a", "millrace@b", "enabled",
			becomes("millrace@b", state("activating", 0, "disabled")),
			result{failed, "millrace@a runs (0.2.0), with 1,234 connections\nstarting millrace@b, which takes over\n",
				"millctl: millrace@b did not take over: it has ended (exit-code)\n" +
					"millctl: journalctl -u millrace@b says why; millrace@a goes on\n"},
			"start millrace@b.service, stop millrace@b.service"},
		{"both end", "millrace@a", "millrace@b", "enabled",
			becomes("millrace@b", state("activating", 0, "disabled")) + becomes("millrace@a", ended),
			result{failed, "millrace@a runs (0.2.0), with 1,234 connections\nstarting millrace@b, which takes over\n",
				"millctl: millrace@b: it has ended (exit-code); millrace@a has ended: systemd starts millrace@b again, " +
					"and journalctl -u millrace@b says why\n"},
			"start millrace@b.service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUnits(t)
			u.runs(c.from, c.file)
			u.rests(c.to)
			u.write("start", c.start)
			expect(t, run(t, server.Socket, "upgrade"), c.want)
			if got := u.asked(); got != c.asked {
				t.Errorf("asked: %s, want %s", got, c.asked)
			}
		})
	}
}

// In these cases upgrade starts and stops nothing.
func TestNothingToUpgrade(t *testing.T) {
	server := apitest.New(t)
	u := newUnits(t)
	u.rests("millrace@a")
	u.rests("millrace@b")
	expect(t, run(t, server.Socket, "upgrade"), result{failed, "",
		"millctl: neither millrace@a nor millrace@b runs, so there is nothing to take over: systemctl start millrace@a\n"})
	u.runs("millrace@a", "enabled")
	expect(t, run(t, server.Socket, "upgrade"), result{failed, "",
		"millctl: millrace@a runs, and cannot be asked: no such thing: GET /stats\n"})
	u.runs("millrace@b", "enabled")
	expect(t, run(t, server.Socket, "upgrade"), result{failed, "",
		"millctl: millrace@a and millrace@b both run, so one of them is taking over already: systemctl status 'millrace@*'\n"})
	u.write("millrace@b.service", "LoadState=not-found\nActiveState=inactive\n")
	expect(t, run(t, server.Socket, "upgrade"), result{failed, "",
		"millctl: systemd has no unit millrace@.service: copy examples/millrace@.service to /etc/systemd/system, then systemctl daemon-reload\n"})
	u.write("systemctl", "#!/bin/sh\necho 'System has not been booted with systemd as init system (PID 1). Can'\\''t operate.' >&2\nexit 1\n")
	expect(t, run(t, server.Socket, "upgrade"), result{failed, "",
		"millctl: systemd does not run here: start the new millrace with --take-over by hand (docs/run.md)\n"})
	t.Setenv("PATH", t.TempDir())
	expect(t, run(t, server.Socket, "upgrade"), result{failed, "",
		"millctl: there is no systemctl here: start the new millrace with --take-over by hand (docs/run.md)\n"})
	if asked := u.asked(); asked != "" {
		t.Errorf("asked: %s", asked)
	}
}
