package mirror_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
)

// metric is the sum of a metric over all its labels.
func metric(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			values := ""
			for _, l := range m.GetLabel() {
				values += " " + l.GetValue()
			}
			matches := true
			for _, l := range labels {
				matches = matches && strings.Contains(values, " "+l)
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (r *running) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.err:
		return err
	case <-within(t).Done():
		t.Fatal("the mirror does not stop")
		return nil
	}
}

// mustLose waits for the end of a mirror because of a loss.
func (r *running) mustLose(t *testing.T, kind mirror.LossKind) {
	t.Helper()
	err := r.ended(t)
	var e *mirror.DataLossError
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(err.Error(), "us->eu.data.loss.policy=continue") {
		t.Fatalf("ended with %v, want a DataLossError of kind %s", err, kind)
	}
	if n := metric(t, r.reg, "mirror_data_loss_total", string(kind)); n < 1 {
		t.Errorf("the metric counts %v losses of kind %s", n, kind)
	}
}

func (r rig) deleteBelow(t *testing.T, alias, topic string, offset int64) {
	t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(topic, 0, offset, -1)
	resp, err := r.admins[alias].DeleteRecords(within(t), o)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Records that the source deleted before they were mirrored stop the mirror, and
// again at each start, until it is told to go on with what is there.
func TestRetentionAheadOfTheMirror(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
	m := run(t, o)
	r.write(t, "us", "t", 0, true, "a", "b")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b"}})
	m.stop(t)
	r.write(t, "us", "t", 0, true, "lost1", "lost2")
	r.write(t, "us", "t", 0, true, "c")
	r.deleteBelow(t, "us", "t", 6)
	run(t, o).mustLose(t, mirror.LossRetention)
	run(t, o).mustLose(t, mirror.LossRetention)
	o.Flows[0].DataLoss = mirror.DataLossContinue
	m = run(t, o)
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c"}})
	if n := metric(t, m.reg, "mirror_data_loss_total", "retention"); n != 1 {
		t.Errorf("%v losses reported, want 1", n)
	}
	m.stop(t)
}

// A topic that is deleted stops the mirror; one of the same name that comes in
// its place is another one, seen by a running mirror and at a start.
func TestTopicDeletedAndCreatedAgain(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(map[bool]string{true: "running", false: "at start"}[running], func(t *testing.T) {
			r := embedded(t)
			r.create(t, "us", 1, nil, "t")
			o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
			m := run(t, o)
			r.write(t, "us", "t", 0, true, "a", "b", "c")
			r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c"}})
			if !running {
				m.stop(t)
			}
			if _, err := r.admins["us"].DeleteTopics(within(t), "t"); err != nil {
				t.Fatal(err)
			}
			if running {
				err := m.ended(t)
				var e *mirror.DataLossError
				if !errors.As(err, &e) || e.Kind != mirror.LossDeleted {
					t.Fatalf("ended with %v", err)
				}
			}
			r.create(t, "us", 1, nil, "t")
			r.write(t, "us", "t", 0, true, "d", "e", "f", "g", "h", "i")
			run(t, o).mustLose(t, mirror.LossRecreated)
			o.Flows[0].DataLoss = mirror.DataLossContinue
			m = run(t, o)
			r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c", "d", "e", "f", "g", "h", "i"}})
			m.stop(t)
			o.Flows[0].DataLoss = mirror.DataLossStop
			m = run(t, o)
			r.write(t, "us", "t", 0, true, "j")
			r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}})
			m.stop(t)
		})
	}
}

// The mirror's own group is lost: what the target holds is not mirrored again.
func TestLostPositionRepeatsNothing(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
	o.Flows[0].SessionTimeout = 0 // the default
	m := run(t, o)
	r.write(t, "us", "t", 0, true, "a", "b", "c")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c"}})
	m.stop(t)
	group := o.Flows[0].GroupID()
	if _, err := r.admins["us"].LeaveGroup(within(t), kadm.LeaveGroup(group).InstanceIDs("one")); err != nil {
		t.Fatal(err)
	}
	if resp, err := r.admins["us"].DeleteGroup(within(t), group); err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
	m = run(t, o)
	r.write(t, "us", "t", 0, true, "d")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c", "d"}})
	eventually(t, "duplicates", func() string { // they are counted after the commit
		if n := metric(t, m.reg, "mirror_records_skipped_total", "duplicate"); n != 3 {
			return fmt.Sprintf("%v were found, want 3", n)
		}
		return ""
	})
	m.stop(t)
}

// A record that the target refuses for good is named, and not skipped.
func TestRecordTooLargeStops(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	r.create(t, "eu", 1, map[string]string{"max.message.bytes": "1000"}, "us.t")
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
	o.Flows[0].SyncTopicConfigs = false
	incompressible := make([]byte, 5000)
	_, _ = rand.Read(incompressible)
	r.write(t, "us", "t", 0, true, string(incompressible))
	m := run(t, o)
	err := m.ended(t)
	var e *mirror.RecordError
	if !errors.As(err, &e) || e.Topic != "us.t" {
		t.Fatalf("ended with %v, want a RecordError", err)
	}
}

// Two processes of one name: the later one has the work, the other one ends and
// says so.
func TestSecondProcessOfOneNameFencesTheFirst(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
	first := run(t, o)
	r.write(t, "us", "t", 0, true, "a")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a"}})
	second := run(t, o)
	if err := first.ended(t); !errors.As(err, new(*client.FencedError)) && !errors.Is(err, kerr.FencedInstanceID) {
		t.Fatalf("the first ended with %v, want that it is fenced", err)
	}
	r.write(t, "us", "t", 0, true, "b")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b"}})
	second.stop(t)
}

// A running mirror that is told to go on takes a topic that is created again for
// a new one, and mirrors it from its start.
func TestGoesOnWithATopicCreatedAgain(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t", "t2")
	o := r.options(mirror.Policy{}, r.flow(t, "us", "eu"))
	o.Flows[0].DataLoss = mirror.DataLossContinue
	m := run(t, o)
	r.write(t, "us", "t", 0, true, "a", "b", "c")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c"}})
	if _, err := r.admins["us"].DeleteTopics(within(t), "t"); err != nil {
		t.Fatal(err)
	}
	r.create(t, "us", 1, nil, "t")
	r.write(t, "us", "t", 0, true, "d")
	r.write(t, "us", "t2", 0, true, "z")
	r.awaitValues(t, "eu", "us.t2", map[int][]string{0: {"z"}})
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a", "b", "c", "d"}})
	if n := metric(t, m.reg, "mirror_data_loss_total"); n < 1 {
		t.Errorf("%v losses reported", n)
	}
	m.stop(t)
}

// The topic on the target is deleted: it is created again, and mirrored to from
// where the mirror stands.
func TestTargetTopicDeleted(t *testing.T) {
	r := embedded(t)
	r.create(t, "us", 1, nil, "t")
	m := run(t, r.options(mirror.Policy{}, r.flow(t, "us", "eu")))
	r.write(t, "us", "t", 0, true, "a")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"a"}})
	if _, err := r.admins["eu"].DeleteTopics(within(t), "us.t"); err != nil {
		t.Fatal(err)
	}
	r.write(t, "us", "t", 0, true, "b")
	r.awaitValues(t, "eu", "us.t", map[int][]string{0: {"b"}})
	m.stop(t)
}
