//go:build kafka

package interop

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// site is a cluster as its clients see it.
type site struct {
	name, id string
	*link
}

// rig is an Apache Kafka cluster, a mini-broker that is a cluster, and another
// one that is their coordinator.
type rig struct {
	us, eu site // us is Apache Kafka
	gtc    *node.Node
	unique string // in the names of this run
}

func newRig(t *testing.T, us cluster.Profile) *rig {
	t.Helper()
	dir := t.TempDir()
	binary := buildMinibroker(t, dir)
	r := &rig{
		us: site{name: "us", link: newLink(t)}, eu: site{name: "eu", id: "cluster-eu", link: newLink(t)},
		unique: strconv.FormatInt(time.Now().UnixNano(), 36),
	}
	r.us.id = apacheKafka(t, r.us.link, us)
	eu := minibroker(t, binary, dir, "eu", "process.roles=broker", "cluster.id="+r.eu.id,
		"advertised.listeners=PLAINTEXT://"+r.eu.addr, "transaction.max.timeout.ms=2147483647",
		"transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true")
	r.eu.to(eu.Addr)
	r.gtc = minibroker(t, binary, dir, "gtc", "process.roles=broker,gtc", "gtc.clusters=us,eu",
		"gtc.cluster.us.bootstrap.servers="+r.us.addr, "gtc.cluster.eu.bootstrap.servers="+r.eu.addr,
		"global.transaction.state.log.num.partitions=2",
		"global.transaction.scan.interval.ms=300", "global.transaction.retry.backoff.max.ms=300",
		// After an EndTxn whose fate is not known a producer below
		// transaction.version 2 has to be initialised again (C-END-16). Here all
		// are answered, on a busy machine too.
		"global.transaction.participant.request.timeout.ms="+strconv.Itoa(int(patience.Milliseconds())))
	return r
}

// apacheKafka starts a cluster behind the link and returns its id. It cannot be
// shared: its address ends with the test.
func apacheKafka(t *testing.T, l *link, p cluster.Profile) string {
	t.Helper()
	p.Config = append(p.Config[:len(p.Config):len(p.Config)], "transaction.max.timeout.ms=2147483647", "advertised.listeners=PLAINTEXT://"+l.addr)
	_ = (&cluster.Cluster{Name: "interop"}).Down(t.Context()) // of a run that was killed
	c := cluster.Up(t, "interop", p)
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l.to(c.Bootstrap)
	return c.ID
}

func (r *rig) sites() []site { return []site{r.us, r.eu} }

// name makes a name of this run's own.
func (r *rig) name(words ...string) string {
	return strings.ToLower(strings.Join(append(words, r.unique), "-"))
}

// topic creates a topic with one partition on both clusters and returns its name.
func (r *rig) topic(t *testing.T, name string) string {
	t.Helper()
	for _, s := range r.sites() {
		adm, err := kadm.NewOptClient(kgo.SeedBrokers(s.addr))
		if err != nil {
			t.Fatal(err)
		}
		defer adm.Close()
		if _, err := adm.CreateTopic(deadline(t), 1, 1, nil, name); err != nil {
			t.Fatalf("topic %s on %s: %v", name, s.name, err)
		}
	}
	return name
}

// look reads the topic's partition up to the last stable offset of now.
func (s site) look(t *testing.T, topic string) readback.Partition {
	t.Helper()
	r := readback.NewReader(s.addr)
	defer r.Close()
	for ctx := deadline(t); ; time.Sleep(10 * time.Millisecond) {
		p, err := r.Partition(ctx, topic, 0, 0)
		if err == nil {
			return p
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
}

// visible waits until nothing is open on the topic and returns what is visible.
func (s site) visible(t *testing.T, topic string) []string {
	t.Helper()
	r := readback.NewReader(s.addr)
	defer r.Close()
	records, err := r.Topic(deadline(t), topic)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return values(records)
}
