//go:build kafka

package interop

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// testProducers: Apache Kafka's producer takes part.
func testProducers(t *testing.T, r *rig) {
	java := newJava(t)
	for _, optIn := range []string{optInTimeout, optInRequest} {
		t.Run("Java and franz-go/"+optIn, func(t *testing.T) {
			id := r.name("java-go", optIn)
			s := r.newSession(t, id)
			transactions(t, r, s, r.topic(t, id), openJava(t, java, r.us, id, optIn), openGo(t, r.eu, id))
		})
		t.Run("Java on both/"+optIn, func(t *testing.T) {
			id := r.name("java-java", optIn)
			s := r.newSession(t, id)
			transactions(t, r, s, r.topic(t, id), openJava(t, java, r.us, id, optIn), openJava(t, java, r.eu, id, optIn))
		})
	}
	t.Run("Java moves a group's offset on one and writes to the other", func(t *testing.T) { offsets(t, r, java) })
	t.Run("KIP-939's setting in the released client", func(t *testing.T) { setting(t, r, java) })
	t.Run("Java is killed after it was prepared", func(t *testing.T) { killed(t, r) })
	t.Run("Java decides otherwise", func(t *testing.T) { otherwise(t, r, java) })
}

// offsets: consume from one cluster, produce to the other, with the offset of
// the group where the group is. That participant has nothing but the offset.
func offsets(t *testing.T, r *rig, java *agent) {
	for _, way := range [][2]site{{r.us, r.eu}, {r.eu, r.us}} {
		from, to := way[0], way[1]
		id := r.name("java-offset", from.name)
		s, topic := r.newSession(t, id), r.topic(t, id)
		in, out := openJava(t, java, from, id, optInTimeout), openJava(t, java, to, id, optInTimeout)
		var want []string
		for i, end := range []struct {
			commit bool
			offset int64 // of the group, after it
		}{{true, 1}, {false, 1}, {true, 3}} {
			in.begin(t)
			in.must(t, "offset", in.name, id, topic, strconv.Itoa(i+1))
			value := strconv.Itoa(i)
			s.end(t, end.commit, append(write(t, topic, value, out), in.prepare(t))...)
			for _, p := range []javaProducer{in, out} {
				p.adopt(t, end.commit)
			}
			if end.commit {
				want = append(want, value)
			}
			if got := to.visible(t, topic); !slices.Equal(got, want) {
				t.Errorf("%s shows %v, want %v", to.name, got, want)
			}
			if got := from.visible(t, topic); len(got) != 0 {
				t.Errorf("%s shows %v, want nothing", from.name, got)
			}
			if got := from.groupOffset(t, id, topic); got != end.offset {
				t.Errorf("after transaction %d the group is at %d on %s, want %d", i, got, from.name, end.offset)
			}
		}
	}
}

// groupOffset is the committed offset of partition 0, -1 for none.
func (s site) groupOffset(t *testing.T, group, topic string) int64 {
	t.Helper()
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	for ctx := deadline(t); ; time.Sleep(10 * time.Millisecond) {
		all, err := adm.FetchOffsets(kadm.RequireStable(ctx), group)
		if err == nil {
			err = all.Error()
		}
		switch {
		case err == nil:
			if o, ok := all.Lookup(topic, 0); ok {
				return o.At
			}
			return -1
		case !kerr.IsRetriable(err) || ctx.Err() != nil: // retriable: its marker is being written
			t.Fatal(err)
		}
	}
}

// setting: kafka-clients 4.4.0 takes KIP-939's setting and asks for an ordinary
// timeout all the same, so the cluster could end what is prepared. The
// coordinator sees it and commits nothing.
func setting(t *testing.T, r *rig, java *agent) {
	id := r.name("java-setting")
	s, topic := r.newSession(t, id), r.topic(t, id)
	us, eu := openJava(t, java, r.us, id, optInSetting), openJava(t, java, r.eu, id, optInSetting)
	resp := s.ask(t, true, write(t, topic, "first", us, eu)...)
	t.Logf("outcome %d: %s", resp.Outcome, text(resp.ErrorMessage))
	if resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeAborted {
		t.Errorf("EndGlobalTxn = %+v, want aborted: with no timeout of its own the client should be tested as the others are", resp)
	}
	r.shows(t, topic, nil)
}

// transactions commits, aborts and commits again with the same producers.
func transactions(t *testing.T, r *rig, s *session, topic string, producers ...producer) {
	var want []string
	for _, end := range []struct {
		value  string
		commit bool
	}{{"first", true}, {"second", false}, {"third", true}} {
		open := write(t, topic, end.value, producers...)
		r.hidden(t, topic, end.value)
		next := s.end(t, end.commit, open...)
		for i, p := range producers {
			p.adopt(t, end.commit)
			was, is := open[i], next[open[i].id]
			t.Logf("%s: %s of (%d, %d) on %s, goes on with (%d, %d)", end.value, verb(end.commit),
				was.producerID, was.producerEpoch, was.name, is.ProducerID, is.ProducerEpoch)
			open[i].producerID, open[i].producerEpoch = is.ProducerID, is.ProducerEpoch
		}
		if end.commit {
			want = append(want, end.value)
		}
		r.shows(t, topic, want)
		// What the coordinator hands back is what the producers go on with.
		for i, p := range producers {
			p.begin(t)
			if got := p.prepare(t); got != open[i] {
				t.Errorf("after %s: %+v, want %+v", end.value, got, open[i])
			}
			p.adopt(t, false) // nothing was written, so nothing is sent
		}
	}
}

func write(t *testing.T, topic, value string, producers ...producer) []prepared {
	t.Helper()
	var open []prepared
	for _, p := range producers {
		p.begin(t)
		p.send(t, topic, value)
		open = append(open, p.prepare(t))
	}
	return open
}

// killed: the transaction of a process that is gone is committed all the same,
// and the next process of the application goes on.
func killed(t *testing.T, r *rig) {
	id, topic := r.name("java-killed"), r.topic(t, r.name("java-killed"))
	first, s := newJava(t), r.newSession(t, id)
	open := write(t, topic, "first", openJava(t, first, r.us, id, optInRequest), openJava(t, first, r.eu, id, optInTimeout))
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	s.end(t, true, open...)
	r.shows(t, topic, []string{"first"})

	s = r.newSession(t, id)
	second := newJava(t)
	transactions(t, r, s, r.topic(t, r.name("java-successor")), openJava(t, second, r.us, id, optInRequest), openJava(t, second, r.eu, id, optInTimeout))
	r.shows(t, topic, []string{"first"})
}

// otherwise: a producer that does not do as the coordinator has decided gets an
// error, changes nothing, and has to be initialised again.
func otherwise(t *testing.T, r *rig, java *agent) {
	id, topic := r.name("java-otherwise"), r.topic(t, r.name("java-otherwise"))
	s := r.newSession(t, id)
	us, eu := openJava(t, java, r.us, id, optInRequest), openJava(t, java, r.eu, id, optInTimeout)
	s.end(t, true, write(t, topic, "first", us, eu)...)
	r.shows(t, topic, []string{"first"})
	for _, p := range []javaProducer{us, eu} {
		_, err := java.ask(deadline(t), "end", p.name, "abort")
		var refused *refusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.text, "InvalidTxnStateException") {
			t.Errorf("%s: abort after the commit: %v, want an InvalidTxnStateException", p.name, err)
		}
	}
	r.shows(t, topic, []string{"first"})

	s = r.newSession(t, id)
	transactions(t, r, s, r.topic(t, r.name("java-again")), openJava(t, java, r.us, id, optInRequest), openJava(t, java, r.eu, id, optInTimeout))
}

// hidden fails when a value is visible on either cluster.
func (r *rig) hidden(t *testing.T, topic, value string) {
	t.Helper()
	for _, s := range r.sites() {
		p := s.look(t, topic)
		if !p.Open() || slices.Contains(values(p.Records), value) {
			t.Errorf("%s: before the end of %q: open=%v, visible %v", s.name, value, p.Open(), values(p.Records))
		}
	}
}

// shows fails when not exactly these values are visible on both clusters.
func (r *rig) shows(t *testing.T, topic string, want []string) {
	t.Helper()
	for _, s := range r.sites() {
		if got := s.visible(t, topic); !slices.Equal(got, want) {
			t.Errorf("%s shows %v, want %v", s.name, got, want)
		}
	}
}
