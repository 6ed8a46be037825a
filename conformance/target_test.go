package conformance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance"
)

func readTarget(t *testing.T, lines ...string) (*conformance.Target, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "my.properties")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return conformance.ReadTarget(file)
}

func TestATargetIsReadFromAFile(t *testing.T) {
	dir := t.TempDir()
	login, ran := filepath.Join(dir, "reader.properties"), filepath.Join(dir, "ran")
	if err := os.WriteFile(login, []byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"+
		`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="r" password="p";`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readTarget(t, "bootstrap.servers=a:1,b:2", "participants=us, eu", "participant.us.bootstrap.servers=us:1",
		"participant.eu.bootstrap.servers=eu:1", "participant.eu.via=127.0.0.1:7", "principal.reader="+login,
		"nodes=1", `node.1.kill=f=`+ran+`; touch ${f}`, "scan.interval.ms=250")
	if err != nil {
		t.Fatal(err)
	}
	if got.Bootstrap != "a:1,b:2" || len(got.Participants) != 2 || got.Participants[1].Via != "127.0.0.1:7" || got.Participants[0].Bootstrap != "us:1" ||
		got.ScanInterval != 250*time.Millisecond || got.MaxTimeout != 15*time.Minute || got.Expiration != 168*time.Hour || !strings.HasSuffix(got.Name, "my.properties") {
		t.Errorf("%+v", got)
	}
	if s := got.Principals["reader"]; len(got.Principals) != 1 || s == nil || s.SASL.Name() != "PLAIN" || s.TLS != nil {
		t.Errorf("principals: %+v", got.Principals)
	}
	if len(got.Nodes) != 1 || got.Nodes[0].Start != nil || got.Nodes[0].Kill == nil {
		t.Fatalf("nodes: %+v", got.Nodes)
	}
	if err := got.Nodes[0].Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("the shell's own ${f} was not left to it: %v", err)
	}
}

func TestMistakesInATargetFileAreNamed(t *testing.T) {
	for lines, want := range map[string]string{
		"\nbootstrap.server=a:1":                                  "my.properties:2: bootstrap.server: unknown key; did you mean bootstrap.servers?",
		"principal.readr=x":                                       "principal.readr: unknown key; did you mean principal.reader?",
		"participants=us\nparticipant.us.vja=x":                   "my.properties:2: participant.us.vja: unknown key; did you mean participant.us.via?",
		"participant.us.command.config=x":                         "participant.us.command.config: unknown key",
		"participants=us":                                         "participant.us.bootstrap.servers: is missing",
		"participants=u\nparticipant.u.bootstrap.servers=a:1,b:1": "one address only",
		"scan.interval.ms=fast":                                   `scan.interval.ms: "fast" is not a whole number`,
		"max.timeout.ms=0":                                        "max.timeout.ms: 0 is out of range",
		"command.config=/no/such":                                 "my.properties:1: command.config: conformance: client configuration: reading the configuration: open /no/such",
	} {
		if _, err := readTarget(t, lines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\n  gave %v\n  want %s", lines, err, want)
		}
	}
}
