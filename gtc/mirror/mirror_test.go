package mirror_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
)

func numbered(prefix string, n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("%s%d", prefix, i))
	}
	return values
}

// Both directions with names of the default policy: committed records arrive
// once and in order, aborted ones and loops do not.
func TestBothDirectionsWithAliases(t *testing.T) { bothDirections(t, embedded(t)) }

func bothDirections(t *testing.T, r rig) {
	orders, refunds := r.topics+"-orders", r.topics+"-refunds"
	r.create(t, "us", 2, map[string]string{"retention.ms": "123456789"}, orders)
	r.create(t, "eu", 1, nil, orders, refunds)
	m := run(t, r.options(mirror.Policy{}, r.flow(t, "us", "eu"), r.flow(t, "eu", "us")))
	a, b := numbered("a", 10), numbered("b", 7)
	r.write(t, "us", orders, 0, true, a[:5]...)
	r.write(t, "us", orders, 0, false, "aborted")
	r.write(t, "us", orders, 0, true, a[5:]...)
	r.write(t, "us", orders, 1, true, "only")
	r.write(t, "eu", orders, 0, true, b...)
	r.write(t, "eu", refunds, 0, true, "r")
	r.awaitValues(t, "eu", "us."+orders, map[int][]string{0: a, 1: {"only"}})
	r.awaitValues(t, "us", "eu."+orders, map[int][]string{0: b})
	r.awaitValues(t, "us", "eu."+refunds, map[int][]string{0: {"r"}})
	for alias, topic := range map[string]string{"us": "us.eu." + orders, "eu": "eu.us." + orders} {
		if r.hasTopic(t, alias, topic) {
			t.Errorf("%s was mirrored back to %s", topic, alias)
		}
	}
	// A tombstone stays one.
	cl := newClient(t, r.us, kgo.DefaultProduceTopic(orders), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, rec := range []*kgo.Record{{Key: []byte("k")}, {Value: []byte{}}} {
		rec.Partition, rec.Headers = 1, []kgo.RecordHeader{{Key: "h"}, {Key: "null"}}
		if err := cl.ProduceSync(within(t), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r.awaitValues(t, "eu", "us."+orders, map[int][]string{0: a, 1: {"only", "", ""}})
	r.sameRecords(t, "us", orders, "eu", "us."+orders)
	r.setting(t, "eu", "us."+orders, "retention.ms", "123456789")
	m.stop(t)
}

// setting waits until a topic has a setting.
func (r rig) setting(t *testing.T, alias, topic, key, want string) {
	t.Helper()
	adm := r.admins[alias]
	eventually(t, key+" of "+topic, func() string {
		configs, err := adm.DescribeTopicConfigs(within(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		c, err := configs.On(topic, nil)
		if err != nil {
			return err.Error()
		}
		for _, kv := range c.Configs {
			if kv.Key == key && kv.MaybeValue() == want {
				return ""
			}
		}
		return "not " + want
	})
}

// committedRecords reads all of a topic with another isolation than the
// default, headers and timestamps with it.
func (r rig) committedRecords(t *testing.T, alias, topic string) []*kgo.Record {
	t.Helper()
	n := 0
	for _, vs := range r.values(t, alias, topic) {
		n += len(vs)
	}
	cl := newClient(t, r.addr(alias), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	var records []*kgo.Record
	for len(records) < n {
		fetches := cl.PollFetches(within(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		records = append(records, fetches.Records()...)
	}
	slices.SortStableFunc(records, func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
	return records
}

// sameRecords compares everything that is kept.
func (r rig) sameRecords(t *testing.T, from, source, to, target string) {
	t.Helper()
	want, got := r.committedRecords(t, from, source), r.committedRecords(t, to, target)
	if len(want) != len(got) {
		t.Fatalf("%d records on the target, want %d", len(got), len(want))
	}
	for i := range want {
		w, g := want[i], got[i]
		if n := len(g.Headers) - 1; n < 0 || g.Headers[n].Key != mirror.ProvenanceHeader {
			t.Fatalf("headers %v end without %s", g.Headers, mirror.ProvenanceHeader)
		}
		g.Headers = g.Headers[:len(g.Headers)-1]
		is := func(r *kgo.Record) string {
			return fmt.Sprintf("%d %q %q %v %v", r.Partition, r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli())
		}
		if is(w) != is(g) {
			t.Errorf("record %d is %s, want %s", i, is(g), is(w))
		}
		if (w.Value == nil) != (g.Value == nil) || (w.Key == nil) != (g.Key == nil) || g.Headers[1].Value != nil {
			t.Errorf("record %d: null became empty, or empty null: %+v, want %+v", i, g, w)
		}
	}
}

// With the identity policy one topic is written on both clusters: each record
// is mirrored once and not sent back.
func TestBothDirectionsUnderOneName(t *testing.T) { underOneName(t, embedded(t)) }

func underOneName(t *testing.T, r rig) {
	r.create(t, "us", 1, nil, r.topics)
	r.create(t, "eu", 1, nil, r.topics)
	m := run(t, r.options(mirror.Policy{Identity: true}, r.flow(t, "us", "eu"), r.flow(t, "eu", "us")))
	var us, eu []string
	for i := range 5 {
		us, eu = append(us, fmt.Sprintf("us%d", i)), append(eu, fmt.Sprintf("eu%d", i))
		r.write(t, "us", r.topics, 0, true, us[i])
		r.write(t, "eu", r.topics, 0, i != 2, eu[i])
	}
	eu = slices.Delete(eu, 2, 3)
	for _, alias := range []string{"us", "eu"} {
		eventually(t, alias, func() string {
			got := r.values(t, alias, r.topics)[0]
			if len(got) > len(us)+len(eu) {
				t.Fatalf("%s holds %q", alias, got)
			}
			if len(got) < len(us)+len(eu) {
				return fmt.Sprintf("%d records", len(got))
			}
			for _, want := range [][]string{us, eu} {
				if order := slices.DeleteFunc(slices.Clone(got), func(v string) bool { return !slices.Contains(want, v) }); !slices.Equal(order, want) {
					t.Fatalf("%s holds %q, want %q in this order", alias, got, want)
				}
			}
			return ""
		})
	}
	m.stop(t)
}

// A group's offset is moved exactly, over the gaps of both logs, by a mirror
// that wrote the records and by one that was started after them.
func TestGroupOffsetsMoveExactly(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) { groupOffsets(t, embedded(t), restarted) })
	}
}

func groupOffsets(t *testing.T, r rig, restarted bool) {
	r.create(t, "us", 1, nil, r.topics)
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
	m := run(t, o)
	all := numbered("v", 12)
	for i := 0; i < len(all); i += 3 {
		r.write(t, "us", r.topics, 0, false, "aborted")
		r.write(t, "us", r.topics, 0, true, all[i:i+3]...)
		r.awaitValues(t, "eu", "us."+r.topics, map[int][]string{0: all[:i+3]})
	}
	if restarted {
		m.stop(t)
		m = run(t, o)
	}
	// Source offsets: aborted, marker, three records, marker; and so on.
	for n, at := range map[int]int64{0: 0, 1: 3, 3: 5, 4: 9, 12: 23} {
		group := fmt.Sprintf("%s-g%d", r.topics, n)
		r.commit(t, "us", group, r.topics, at)
		eventually(t, group, func() string {
			got := r.groupOffset(t, "eu", group, "us."+r.topics, 0)
			if got < 0 {
				return "nothing committed"
			}
			if before := r.below(t, "eu", "us."+r.topics, got); before != n {
				t.Fatalf("offset %d has %d records below it, want %d", got, before, n)
			}
			return ""
		})
	}
	m.stop(t)
}

// below counts the visible records below an offset.
func (r rig) below(t *testing.T, alias, topic string, offset int64) int {
	t.Helper()
	n := 0
	for _, rec := range r.committedRecords(t, alias, topic) {
		if rec.Offset < offset {
			n++
		}
	}
	return n
}

func (r rig) commit(t *testing.T, alias, group, topic string, offset int64) {
	t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(topic, 0, offset, -1)
	if err := r.admins[alias].CommitAllOffsets(within(t), group, o); err != nil {
		t.Fatal(err)
	}
}

// A group with members on the target is left alone, and what it has committed
// there is not undone.
func TestLivingGroupIsLeftAlone(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	all := numbered("v", 6)
	r.write(t, "us", "t", 0, true, all...)
	m := run(t, r.options(mirror.Policy{}, r.flow(t, "us", "eu")))
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: all})
	member := newClient(t, r.eu, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("us.t"), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if n := member.PollRecords(within(t), 1).NumRecords(); n != 1 {
		t.Fatalf("polled %d records", n)
	}
	r.commit(t, "us", "g", "t", 6)
	r.commit(t, "us", "witness", "t", 6)
	eventually(t, "the group without members", func() string {
		if r.groupOffset(t, "eu", "witness", "us.t", 0) < 0 {
			return "not moved"
		}
		return ""
	})
	if at := r.groupOffset(t, "eu", "g", "us.t", 0); at != -1 {
		t.Errorf("the offset of a group with members was set to %d", at)
	}
	// It commits further than it has on the source, and goes.
	r.commit(t, "us", "back", "t", 2)
	r.commit(t, "eu", "back", "us.t", 4)
	r.commit(t, "us", "witness2", "t", 6)
	eventually(t, "the group without members", func() string {
		if r.groupOffset(t, "eu", "witness2", "us.t", 0) < 0 {
			return "not moved"
		}
		return ""
	})
	if at := r.groupOffset(t, "eu", "back", "us.t", 0); at != 4 {
		t.Errorf("the group's own commit was set back to %d", at)
	}
	m.stop(t)
}

// Topics and partitions that come later are mirrored from their start, and
// changed settings are taken over.
func TestTopicsGrow(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, map[string]string{"max.message.bytes": "500000"}, "t")
	m := run(t, r.options(mirror.Policy{}, r.flow(t, "us", "eu")))
	r.write(t, "us", "t", 0, true, "a")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a"}})
	adm := r.admins["us"]
	if _, err := adm.UpdatePartitions(within(t), 3, "t"); err != nil {
		t.Fatal(err)
	}
	r.create(t, "us", 2, nil, "t-later", "other")
	r.write(t, "us", "t", 2, true, "b")
	r.write(t, "us", "t-later", 1, true, "c")
	r.write(t, "us", "other", 1, true, "d")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a"}, 2: {"b"}})
	r.awaitValues(t, "eu", "us.t-later", map[int][]string{1: {"c"}})
	value := "400000"
	if _, err := adm.AlterTopicConfigs(within(t), []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}, {Op: kadm.DeleteConfig, Name: "max.message.bytes"},
	}, "t"); err != nil {
		t.Fatal(err)
	}
	r.setting(t, "eu", "us.t", "retention.ms", "400000")
	r.setting(t, "eu", "us.t", "max.message.bytes", "1048588")
	m.stop(t)
}

// Two instances share the partitions; one that dies leaves its own to the other,
// and nothing is there twice.
func TestInstancesShareTheWork(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 4, nil, "t")
	flow := r.flow(t, "us", "eu")
	flow.SessionTimeout = 6 * time.Second // the least that brokers allow
	one, two := r.options(mirror.Policy{}, flow), r.options(mirror.Policy{}, flow)
	two.Instance = "two"
	first, second := run(t, one), run(t, two)
	want := map[int][]string{}
	write := func(from, to int) {
		for i := from; i < to; i++ {
			p := i % 4
			v := fmt.Sprint("v", i)
			want[p] = append(want[p], v)
			r.write(t, "us", "t", int32(p), true, v)
		}
	}
	write(0, 20)
	r.awaitValues(t, "eu", "us.t", want)
	second.stop(t)
	write(20, 40)
	r.awaitValues(t, "eu", "us.t", want)
	first.stop(t)
}

// Under one name in both directions the logs have different orders: a group is
// moved to where nothing before it is unread.
func TestGroupUnderOneNameLosesNothing(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	r.create(t, "eu", 1, nil, "t")
	o := r.options(mirror.Policy{Identity: true}, r.flow(t, "us", "eu"), r.flow(t, "eu", "us"))
	m := run(t, o)
	for i := range 6 {
		r.write(t, "us", "t", 0, true, fmt.Sprintf("us%d", i))
		r.write(t, "eu", "t", 0, true, fmt.Sprintf("eu%d", i))
	}
	for _, alias := range []string{"us", "eu"} {
		eventually(t, alias, func() string {
			if n := len(r.values(t, alias, "t")[0]); n != 12 {
				return fmt.Sprintf("%d records", n)
			}
			return ""
		})
	}
	on := map[string][]*kgo.Record{"us": r.committedRecords(t, "us", "t"), "eu": r.committedRecords(t, "eu", "t")}
	moved := 0
	for restarted := range 2 {
		for n := 1; n <= 12; n++ {
			r.commit(t, "us", fmt.Sprintf("g%d-%d", restarted, n), "t", on["us"][n-1].Offset+1)
		}
		for n := 1; n <= 12; n++ {
			read := map[string]bool{}
			for _, rec := range on["us"][:n] {
				read[string(rec.Value)] = true
			}
			// The first record on the target that the group has not read.
			unread := slices.IndexFunc(on["eu"], func(rec *kgo.Record) bool { return !read[string(rec.Value)] })
			group, at := fmt.Sprintf("g%d-%d", restarted, n), int64(-1)
			eventually(t, group, func() string {
				if at = r.groupOffset(t, "eu", group, "t", 0); at < 0 {
					return "nothing committed"
				}
				return ""
			})
			if unread >= 0 && at > on["eu"][unread].Offset {
				t.Errorf("read %d of %v: on the target %v from %d, and %d is unread", n, values(on["us"]), values(on["eu"]), at, on["eu"][unread].Offset)
			}
			if at > 0 {
				moved++
			}
		}
		m.stop(t)
		m = run(t, o)
	}
	if moved == 0 {
		t.Error("no offset was moved beyond the start")
	}
	m.stop(t)
}

func values(records []*kgo.Record) (vs []string) {
	for _, r := range records {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// A group that has moved to the target and goes on there has its place on the
// source too, to come home to.
func TestGroupOffsetsMoveHome(t *testing.T) { groupOffsetsHome(t, embedded(t)) }

func groupOffsetsHome(t *testing.T, r rig) {
	topic, remote := r.topics, "us."+r.topics
	r.create(t, "us", 1, nil, topic)
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"), r.flow(t, "eu", "us"))
	m := run(t, o)
	all := numbered("v", 9)
	for i := 0; i < len(all); i += 3 {
		r.write(t, "us", topic, 0, false, "aborted")
		r.write(t, "us", topic, 0, true, all[i:i+3]...)
		r.awaitValues(t, "eu", remote, map[int][]string{0: all[:i+3]})
	}
	mirrored := r.committedRecords(t, "eu", remote)
	for restarted := range 2 {
		for _, n := range []int{1, 3, 4, 9} {
			group := fmt.Sprintf("%s-h%d-%d", topic, restarted, n)
			r.commit(t, "eu", group, remote, mirrored[n-1].Offset+1)
			eventually(t, group, func() string {
				at := r.groupOffset(t, "us", group, topic, 0)
				if at < 0 {
					return "nothing committed"
				}
				if before := r.below(t, "us", topic, at); before != n {
					t.Fatalf("offset %d has %d records below it, want %d", at, before, n)
				}
				return ""
			})
			// And nothing is set back where it came from.
			if at := r.groupOffset(t, "eu", group, remote, 0); r.below(t, "eu", remote, at) != n {
				t.Errorf("the group on the target was moved to %d", at)
			}
		}
		m.stop(t)
		m = run(t, o)
	}
	m.stop(t)
}
