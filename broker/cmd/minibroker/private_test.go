package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// exposedIn lists what others may read or write of a data directory.
func exposedIn(t *testing.T, dir string) (all []string, files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		files++
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != want {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel+" "+info.Mode().Perm().String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, files
}

// withUmask starts processes that make files for everybody, as far as it goes by
// the umask.
func withUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func TestTheDataDirectoryIsForItsUserAlone(t *testing.T) {
	withUmask(t, 0)
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{
		"--override", "sasl.scram.credentials=SCRAM-SHA-256=[name=alice,password=a]", "--override", "sasl.enabled.mechanisms=SCRAM-SHA-256",
		"--override", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT", "--override", "process.roles=broker,gtc", "--override", "transaction.max.timeout.ms=2147483647",
	}
	use := func(p *process) {
		t.Helper()
		cl := p.client(t, kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("t"),
			kgo.SASL(scram.Auth{User: "alice", Pass: "a"}.AsSha256Mechanism()))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	private := func(when string) {
		t.Helper()
		if all, files := exposedIn(t, dir); len(all) > 0 || files < 10 {
			t.Errorf("%s, of %d files: %s", when, files, strings.Join(all, ", "))
		}
	}
	p := serve(t, dir, args...)
	use(p)
	private("while it serves")
	p.signal(t, os.Kill)
	p.exit(t)
	p = serve(t, dir, args...)
	use(p)
	private("after a crash")
	p.signal(t, os.Interrupt)
	p.exit(t)
	private("after a clean stop")

	// As an older node, or somebody's cp, has left it.
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	}); err != nil {
		t.Fatal(err)
	}
	p = serve(t, dir, args...)
	private("after a start that found it open")
	if !strings.Contains(p.logged(), "were open to others") {
		t.Error("nobody is told that passwords could be read")
	}
	use(p)
	private("after it was used again")
}

func TestADirectoryOfOthersIsNotTakenFromThem(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "log.dirs="+dir)
	if code := p.exit(t); code != 1 || !strings.Contains(p.logged(), "open to others (-rwxrwxrwx)") || !strings.Contains(p.logged(), "log.dirs") {
		t.Errorf("exit code %d:\n%s", code, p.logged())
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
