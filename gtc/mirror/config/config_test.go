package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
)

const least = `clusters = us, eu
us.bootstrap.servers = us-1:9092,us-2:9092
eu.bootstrap.servers = eu-1:9092
gtc.bootstrap.servers = gtc:9092
us->eu.enabled = true
`

func parse(t *testing.T, text string, overrides ...string) *Config {
	t.Helper()
	c, err := Parse("mirror.properties", strings.NewReader(text), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaultsAreMirrorMakers(t *testing.T) {
	c := parse(t, least)
	if len(c.Mirror.Flows) != 1 || c.Mirror.Policy.Identity || c.Mirror.Policy.Separator != "." || c.Mirror.Instance == "" {
		t.Fatalf("%+v", c.Mirror)
	}
	f := c.Mirror.Flows[0]
	if f.Name() != "us->eu" || f.RefreshTopicsInterval != 10*time.Minute || !f.SyncTopicConfigs || f.SyncGroupOffsets || f.DataLoss != mirror.DataLossStop {
		t.Errorf("%+v", f)
	}
	for name, want := range map[string]bool{"orders": true, "mm2-configs.internal": false, "x.replica": false, "__consumer_offsets": false} {
		if got := f.Topics.Match(name); got != want {
			t.Errorf("topic %q: %v", name, got)
		}
	}
	for name, want := range map[string]bool{"billing": true, "console-consumer-1": false, "connect-x": false} {
		if got := f.Groups.Match(name); got != want {
			t.Errorf("group %q: %v", name, got)
		}
	}
	for name, want := range map[string]bool{"retention.ms": false, "min.insync.replicas": true, "message.timestamp.type": true} {
		if got := (mirror.Filter{Include: f.ConfigsExclude}).Match(name); got != want {
			t.Errorf("setting %q is excluded: %v", name, got)
		}
	}
	if _, err := mirror.New(withClock(c.Mirror)); err != nil {
		t.Error(err)
	}
}

func withClock(o mirror.Options) mirror.Options {
	o.Clock = mirror.SystemClock()
	return o
}

func TestFlowKeysGoBeforeThoseOfAllFlows(t *testing.T) {
	c := parse(t, least+`
eu->us.enabled=true
topics=orders,pay.*
us->eu.topics=bills
us->eu.sync.group.offsets.enabled=true
refresh.topics.interval.seconds=5
eu->us.refresh.topics.interval.seconds=7
data.loss.policy=continue
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
eu.transaction.two.phase.commit.enable=true
us.transaction.two.phase.commit.enable=false
`, "us->eu.batch.max.records=5")
	if len(c.Mirror.Flows) != 2 || !c.Mirror.Policy.Identity {
		t.Fatalf("%+v", c.Mirror)
	}
	out, back := c.Mirror.Flows[0], c.Mirror.Flows[1]
	if !out.Topics.Match("bills") || out.Topics.Match("orders") || !back.Topics.Match("payments") {
		t.Errorf("topics %v and %v", out.Topics.Include, back.Topics.Include)
	}
	if out.RefreshTopicsInterval != 5*time.Second || back.RefreshTopicsInterval != 7*time.Second || !out.SyncGroupOffsets || back.SyncGroupOffsets ||
		out.BatchRecords != 5 || back.BatchRecords != 10_000 || back.DataLoss != mirror.DataLossContinue {
		t.Errorf("%+v\n%+v", out, back)
	}
	if c.Mirror.Clusters["eu"].TwoPhaseCommit != client.TwoPhaseCommitOn || c.Mirror.Clusters["us"].TwoPhaseCommit != client.TwoPhaseCommitOff {
		t.Error("two-phase commit is not as configured")
	}
}

// Each mistake is refused with its line, and all at once.
func TestMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"us->eu.topcis=x":                     "mirror.properties:6: us->eu.topcis: unknown key; did you mean us->eu.topics?",
		"topics.exclud=x":                     "mirror.properties:6: topics.exclud: unknown key; did you mean topics.exclude?",
		"us.bootstrap.server=x":               "did you mean us.bootstrap.servers?",
		"gtc.bootstrap.server=x":              "did you mean gtc.bootstrap.servers?",
		"replication.policy.clas=x":           "did you mean replication.policy.class?",
		"ap.bootstrap.servers=x:1":            `ap.bootstrap.servers: "ap" is not in clusters=us,eu`,
		"us->ap.enabled=true":                 `us->ap.enabled: "ap" is not in clusters=us,eu`,
		"us->us.enabled=true":                 "a cluster is not mirrored to itself",
		"topics=(":                            "topics: \"(\" is no regular expression",
		"us->eu.topics=a(?!b)":                "us->eu.topics: ",
		"topics=a,,b":                         "has an empty entry",
		"refresh.topics.interval.seconds=0":   "0 is out of range; allowed is 1 to 2147483647",
		"sync.group.offsets.enabled=yes":      `"yes" is neither true nor false`,
		"replication.policy.class=My":         `"My" is not one of default, identity`,
		"data.loss.policy=skip":               `"skip" is not one of stop, continue`,
		"emit.checkpoints.enabled=true":       "MirrorMaker's, and without meaning here: offsets are moved in the transactions of the records",
		"us->eu.emit.heartbeats.enabled=true": "there are no heartbeats",
		"tasks.max=4":                         "start as many processes as you like",
		"topics.blacklist=x":                  "write topics.exclude",
		"us->eu.enabled=true":                 "already set on line 5; remove one of the two",
		"us.sasl.mechanism=PLAIN":             "has no effect with us.security.protocol=PLAINTEXT",
		"us.security.protocol=SASL_PLAINTEXT": "us.sasl.mechanism: is missing",
		"us.ssl.truststore.location=/x":       "has no effect with us.security.protocol=PLAINTEXT",
		"metrics.listener=9090":               `"9090" is not host:port`,
		"us.security.protocol=SSL\nus.ssl.truststore.location=/no/such":   "mirror.properties:7: us.ssl.truststore.location: open /no/such",
		"us.security.protocol=SSL\nus.ssl.truststore.certificates=no PEM": "mirror.properties:7: us.ssl.truststore.certificates: holds no PEM certificate",
		"gtc.security.protocol=SSL\ngtc.ssl.keystore.key=hunter2":         "mirror.properties:7: gtc.ssl.keystore.key: gtc.ssl.keystore.certificate.chain belongs to it",
	} {
		_, err := Parse("mirror.properties", strings.NewReader(least+text+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  gave  %v\n  want  %s", text, err, want)
		}
	}
	_, err := Parse("f", strings.NewReader("clusters=us,gtc\nus.bootstrap.servers=x\n"), []string{"nothing"})
	for _, want := range []string{"--override: not of the form key=value"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	_, err = Parse("f", strings.NewReader("clusters=us,gtc\nus.bootstrap.servers=x\n"), nil)
	for _, want := range []string{
		"not gtc, which is the coordinator", `us.bootstrap.servers: "x" is not host:port`, "gtc.bootstrap.servers: is missing", "no flow is enabled",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	const login = `us.security.protocol=SASL_PLAINTEXT
us.sasl.mechanism=SCRAM-SHA-512
us.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="m" password="hunter2";
`
	c := parse(t, least+login)
	if shown := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(shown, "hunter2") {
		t.Errorf("shown: %s", shown)
	}
	for _, broken := range []string{strings.Replace(login, "required", "", 1), strings.Replace(login, ";", "", 1), strings.Replace(login, `username="m"`, "x", 1)} {
		_, err := Parse("f", strings.NewReader(least+broken), nil)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "us.sasl.jaas.config") {
			t.Errorf("%v", err)
		}
	}
}

func TestHelpNamesEveryKey(t *testing.T) {
	var b strings.Builder
	if err := PrintHelp(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		if k.Doc == "" || !strings.Contains(b.String(), k.Name+" (") {
			t.Errorf("%s is not explained", k.Name)
		}
		if k.Default != "" && k.Check(k.Default) != "" {
			t.Errorf("the default of %s: %s", k.Name, k.Check(k.Default))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(least)
	f.Add(least + "us->eu.topics=a\\\n b\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Parse("f", strings.NewReader(text), nil); err == nil && len(c.Mirror.Flows) == 0 {
			t.Error("accepted without a flow")
		}
	})
}
