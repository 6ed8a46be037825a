package cluster

import (
	"errors"
	"os"
	"testing"
)

func TestParseReadsTheLineThatUpPrints(t *testing.T) {
	got, err := parse("us bootstrap=127.0.0.1:20079 cluster.id=dFUHAtqPGVkVRwdlpqRL9A version=4.4.0 pid=14941\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Cluster{Name: "us", Bootstrap: "127.0.0.1:20079", ID: "dFUHAtqPGVkVRwdlpqRL9A", Version: "4.4.0"}
	if *got != want {
		t.Fatalf("parse = %+v, want %+v", *got, want)
	}
}

func TestParseRefusesAnythingElse(t *testing.T) {
	for _, out := range []string{"", "\n", "us", "us bootstrap=127.0.0.1:1 version=4.4.0 pid=1"} {
		if c, err := parse(out); !errors.Is(err, errLine) {
			t.Errorf("parse(%q) = %+v, %v; want an error", out, c, err)
		}
	}
}

func TestScriptIsFoundFromInsideTheModuleOnly(t *testing.T) {
	if _, err := script(); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if path, err := script(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("script() = %q, %v outside the module, want %v", path, err, os.ErrNotExist)
	}
}
