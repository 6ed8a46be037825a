package mirror

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

func TestDefaultPolicyNamesAndFindsCycles(t *testing.T) {
	p := Policy{Separator: "."}
	if got := p.RemoteTopic("us", "orders.eu"); got != "us.orders.eu" {
		t.Errorf("remote name %q", got)
	}
	for topic, want := range map[string]bool{
		"orders": false, "us.orders": true, "ap.us.orders": true, "us": false, "orders.us": false, "usa.orders": false, "us.": true, "": false,
	} {
		if got := p.cycle(topic, "us"); got != want {
			t.Errorf("%q came from us: %v, want %v", topic, got, want)
		}
	}
	if (Policy{Identity: true, Separator: "."}).cycle("us.orders", "us") {
		t.Error("the identity policy took a name for a cycle")
	}
}

// Whatever clusters mirror to one another, no name grows without end: a topic
// does not come back to a cluster that it has been on.
func TestNamesDoNotGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Separator: rapid.SampledFrom([]string{".", "_", "->"}).Draw(t, "separator")}
		clusters := []string{"a", "b", "c"}
		topic, at := "t", rapid.SampledFrom(clusters).Draw(t, "home")
		been := map[string]bool{at: true}
		for range 10 {
			next := rapid.SampledFrom(clusters).Draw(t, "next")
			if next == at {
				continue
			}
			if cycle := p.cycle(topic, next); cycle != (been[next] && strings.Contains(topic, next+p.Separator)) {
				t.Fatalf("%q to %s: cycle %v", topic, next, cycle)
			} else if cycle {
				continue
			}
			topic, at = p.RemoteTopic(at, topic), next
			been[next] = true
		}
		if n := strings.Count(topic, p.Separator); n > len(clusters) {
			t.Fatalf("%q has %d hops", topic, n)
		}
	})
}

func TestFilterMatchesWholeNames(t *testing.T) {
	compile := func(p ...string) Patterns {
		c, err := CompilePatterns(p...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	f := Filter{Include: compile("orders", "pay.*|bills"), Exclude: compile(".*internal", "pay-x")}
	for name, want := range map[string]bool{
		"orders": true, "orders2": false, "xorders": false, "payments": true, "bills": true, "bills2": false,
		"pay-internal": false, "pay-x": false, "pay-xy": true, "": false,
	} {
		if got := f.Match(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	if (Filter{}).Match("x") {
		t.Error("no pattern matches something")
	}
	for _, bad := range []string{"(", "*x", "a(?=b)"} {
		if _, err := CompilePatterns("ok", bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func transactional(h ...kgo.RecordHeader) *kgo.Record {
	return &kgo.Record{Partition: 3, Headers: h, Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true})}
}

func TestProvenanceSurvivesTheHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := provenance{
			source:    rapid.StringMatching(`[A-Za-z0-9_-]{1,22}`).Draw(t, "source"),
			topic:     rapid.StringMatching(`[A-Za-z0-9._-]{1,50}`).Draw(t, "topic"),
			partition: 3, offset: rapid.Int64Min(0).Draw(t, "offset"),
		}
		copy(p.topicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		p.origin = rapid.SampledFrom([]string{p.source, "another"}).Draw(t, "origin")
		got, ok := provenanceOf(transactional(kgo.RecordHeader{Key: "x"}, p.header()), func(topic string) bool { return topic == p.topic })
		if !ok || got != p {
			t.Fatalf("%+v became %+v, %v", p, got, ok)
		}
	})
}

// An application that copies all headers into a record of its own does not make
// it a mirrored one.
func TestCopiedHeaderIsNotBelieved(t *testing.T) {
	p := provenance{source: "us-id", topic: "t", partition: 3, offset: 7, origin: "us-id"}
	is := func(r *kgo.Record, topic string) bool {
		_, ok := provenanceOf(r, func(named string) bool { return named == topic })
		return ok
	}
	if !is(transactional(p.header()), "t") {
		t.Fatal("a mirrored record is not known")
	}
	if is(transactional(p.header()), "answers") {
		t.Error("believed in another topic")
	}
	other := transactional(p.header())
	other.Partition = 4
	if is(other, "t") {
		t.Error("believed in another partition")
	}
	if is(&kgo.Record{Partition: 3, Headers: []kgo.RecordHeader{p.header()}}, "t") {
		t.Error("believed outside of a transaction")
	}
	if is(transactional(p.header(), kgo.RecordHeader{Key: "more"}), "t") {
		t.Error("believed before another header")
	}
	var back partition
	if !back.cameBack(100, p) || back.cameBack(101, p) {
		t.Error("the same record came from the target twice")
	}
	p.offset = 8
	if !back.cameBack(102, p) {
		t.Error("the next record was not believed")
	}
}

func FuzzProvenance(f *testing.F) {
	f.Add("us/t/AAAAAAAAAAAAAAAAAAAAAA/3/7/eu")
	f.Fuzz(func(t *testing.T, value string) {
		p, ok := parseProvenance(value)
		if !ok {
			return
		}
		if q, ok := parseProvenance(string(p.header().Value)); !ok || p != q {
			t.Errorf("%q: %+v became %+v", value, p, q)
		}
	})
}

func TestStampReplacesTheEarlierHop(t *testing.T) {
	p := provenance{source: "us-id", topic: "t", origin: "us-id"}
	headers := []kgo.RecordHeader{{Key: "a"}, p.header()}
	q := provenance{source: "eu-id", topic: "us.t", origin: "us-id", offset: 9}
	got := stamp(headers, true, q)
	if len(got) != 2 || got[0].Key != "a" || string(got[1].Value) != string(q.header().Value) {
		t.Errorf("headers %v", got)
	}
	if string(headers[1].Value) != string(p.header().Value) {
		t.Error("the source's record was changed")
	}
	if got := stamp(headers, false, q); len(got) != 3 {
		t.Errorf("headers %v", got)
	}
}
