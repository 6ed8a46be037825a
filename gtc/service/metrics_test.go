package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// answering are participant clusters that answer as a test says.
type answering struct {
	mu      sync.Mutex
	vote    map[string]gtc.VoteCode
	outcome map[string]gtc.EndOutcome
	open    map[string][]gtc.OpenTransaction
}

func (a *answering) Check(_ context.Context, _ string, clusterIDs []string) []gtc.CheckResult {
	checks := make([]gtc.CheckResult, len(clusterIDs))
	for i, id := range clusterIDs {
		checks[i].ClusterID = id
	}
	return checks
}

func (a *answering) Vote(_ context.Context, _ string, refs []gtc.ParticipantRef) []gtc.Vote {
	a.mu.Lock()
	defer a.mu.Unlock()
	votes := make([]gtc.Vote, len(refs))
	for i, r := range refs {
		votes[i] = gtc.Vote{Code: a.vote[r.ClusterID], EndTxnVersion: 5, Detail: "as the test says"}
	}
	return votes
}

func (a *answering) End(_ context.Context, e gtc.EndTxn) gtc.EndAnswer {
	p := e.Participant
	a.mu.Lock()
	defer a.mu.Unlock()
	outcome, said := a.outcome[p.ClusterID]
	if !said {
		outcome = gtc.EndDone
	}
	return gtc.EndAnswer{
		Outcome: outcome, NextProducerID: p.ProducerID, NextProducerEpoch: p.ProducerEpoch + 1, EndTxnVersion: 5,
		Detail: "as the test says",
	}
}

func (a *answering) Scan(_ context.Context, clusterID string, known func(string) bool) ([]gtc.OpenTransaction, error) {
	a.mu.Lock()
	open := slices.Clone(a.open[clusterID])
	a.mu.Unlock()
	return slices.DeleteFunc(open, func(o gtc.OpenTransaction) bool { return !known(o.ID) }), nil
}

func (a *answering) Aliases() []string { return []string{"a", "b"} }

func (a *answering) Learn(_ context.Context, alias string) (string, error) { return alias, nil }

func (a *answering) ends(clusterID string, outcome gtc.EndOutcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcome[clusterID] = outcome
}

// bench is a service over a store in memory.
type bench struct {
	*service.Service
	clusters *answering
	log      *bytes.Buffer
	id       string
	epoch    int32
	sequence int64
}

func start(t *testing.T, store *memlog.Store, before ...func(*answering)) *bench {
	t.Helper()
	b := &bench{id: "id", log: new(bytes.Buffer), clusters: &answering{
		vote: map[string]gtc.VoteCode{}, outcome: map[string]gtc.EndOutcome{}, open: map[string][]gtc.OpenTransaction{},
	}}
	for _, f := range before {
		f(b.clusters)
	}
	cfg := gtc.DefaultConfig()
	cfg.RetryBackoffMaxMillis = 20
	log := store.Open()
	var err error
	b.Service, err = service.New(service.Options{
		Log: log, Participants: b.clusters, Config: cfg, Logger: zerolog.New(zerolog.SyncWriter(b.log)),
		ScanInterval: 20 * time.Millisecond, LazyLinger: time.Millisecond,
		Reachable: func() map[string]bool { return map[string]bool{"a": true, "b": false} },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.OwnAll()
	eventually(t, func() error {
		if active, owned := b.Loaded(); active != owned {
			return fmt.Errorf("%d of %d partitions are loaded", active, owned)
		}
		return nil
	})
	t.Cleanup(func() { b.stop(t); log.Close() })
	return b
}

func (b *bench) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// patience bounds what takes a second on an idle machine.
const patience = 2 * time.Minute

func eventually(tb testing.TB, f func() error) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	tb.Fatal(err)
}

func (b *bench) session(t *testing.T, timeout time.Duration) {
	t.Helper()
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs, req.InstanceID = b.id, int32(timeout.Milliseconds()), []string{"a", "b"}, [16]byte{1}
	resp := b.Handle(t.Context(), "", "", req).(*wire.InitGlobalTxnResponse)
	if resp.ErrorCode != 0 {
		t.Fatalf("InitGlobalTxn: %d %v", resp.ErrorCode, resp.ErrorMessage)
	}
	b.epoch, b.sequence = resp.GlobalEpoch, resp.Sequence
}

// commit asks for it and waits for the answer no longer than patience.
func (b *bench) commit(t *testing.T, patience time.Duration) *wire.EndGlobalTxnResponse {
	t.Helper()
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence, req.Committed, req.TimeoutMillis = b.id, b.epoch, b.sequence, true, int32(patience.Milliseconds())
	for _, c := range []string{"a", "b"} {
		p := wire.NewEndGlobalTxnRequestParticipant()
		p.ClusterID, p.ProducerID, p.ProducerEpoch = c, 7, int16(b.sequence%1000)
		req.Participants = append(req.Participants, p)
	}
	b.sequence++
	resp, _ := b.Handle(t.Context(), "", "", req).(*wire.EndGlobalTxnResponse)
	return resp
}

// gather gives every sample as name{label="value"}; a histogram by its count.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			// Of the three only one is there.
			samples[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return samples
}

func (b *bench) want(t *testing.T, want map[string]float64) {
	t.Helper()
	eventually(t, func() error {
		got := gather(t, b.Metrics())
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				return fmt.Errorf("%s is %v, want %v", name, got[name], want[name])
			}
		}
		return nil
	})
}

var (
	kipRow  = regexp.MustCompile("(?m)^\\| [a-z-]+ \\| `(gtc_[a-z_]+)(?:\\{([a-z,]+)\\})?` \\| (counter|gauge|histogram)")
	descOf  = regexp.MustCompile(`fqName: "([^"]*)"`)
	labelOf = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
)

func TestTheMetricsAreThoseOfTheKIPAndNoOthers(t *testing.T) {
	kip, err := os.ReadFile("../../KIP.md")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for _, row := range kipRow.FindAllStringSubmatch(string(kip), -1) {
		want[row[1]] = row[2]
	}
	if len(want) < 10 {
		t.Fatalf("KIP.md has a table of %d metrics only: %v", len(want), want)
	}
	got := make(map[string]string)
	ch := make(chan *prometheus.Desc)
	go func() {
		start(t, memlog.NewStore(1)).Metrics().Describe(ch)
		close(ch)
	}()
	for d := range ch {
		got[descOf.FindStringSubmatch(d.String())[1]] = labelOf.FindStringSubmatch(d.String())[1]
	}
	if !maps.Equal(got, want) {
		t.Errorf("the registry has\n%v\nand KIP.md\n%v", got, want)
	}
}

func TestCommitsAndRefusedVotesAreCounted(t *testing.T) {
	b := start(t, memlog.NewStore(1))
	b.session(t, time.Minute)
	for range 2 {
		if r := b.commit(t, 10*time.Second); r.Outcome != int8(gtc.OutcomeCommitted) {
			t.Fatalf("%+v", r)
		}
	}
	b.clusters.mu.Lock()
	b.clusters.vote["b"] = gtc.VoteRefused
	b.clusters.mu.Unlock()
	if r := b.commit(t, 10*time.Second); r.Outcome != int8(gtc.OutcomeAborted) {
		t.Fatalf("%+v", r)
	}
	b.want(t, map[string]float64{
		`gtc_transactions_ended_total{outcome="committed"}`:          2,
		`gtc_transactions_ended_total{outcome="aborted"}`:            1,
		`gtc_votes_refused_total{cluster="b",reason="refused"}`:      1,
		`gtc_votes_refused_total{cluster="a",reason="refused"}`:      0,
		`gtc_end_txn_attempts_total{cluster="a",result="done"}`:      3,
		`gtc_end_txn_duration_seconds{cluster="a"}`:                  3,
		`gtc_transactions_open{phase="pending"}`:                     0,
		`gtc_transactions_open{phase="undecided"}`:                   0,
		`gtc_transactions_open{phase="in_doubt"}`:                    0,
		`gtc_heuristic_outcomes`:                                     0,
		`gtc_log_fenced_total`:                                       0,
		`gtc_participant_reachable{cluster="a"}`:                     1,
		`gtc_participant_reachable{cluster="b"}`:                     0,
		`gtc_scan_failures_total{cluster="a"}`:                       0,
		`gtc_end_txn_attempts_total{cluster="b",result="committed"}`: 0,
		`gtc_transactions_oldest_age_seconds{phase="pending"}`:       0,
		`gtc_votes_refused_total{cluster="b",reason="unavailable"}`:  0,
		`gtc_leftover_aborts_total{cluster="a"}`:                     0,
		`gtc_heuristic_outcomes_total{cluster="a"}`:                  0,
		`gtc_transactions_oldest_age_seconds{phase="in_doubt"}`:      0,
		`gtc_transactions_oldest_age_seconds{phase="undecided"}`:     0,
	})
	eventually(t, func() error {
		got := gather(t, b.Metrics())
		for _, name := range []string{
			"gtc_log_append_duration_seconds", "gtc_log_append_records", `gtc_scan_duration_seconds{cluster="a"}`,
			`gtc_partition_load_duration_seconds{partition="0"}`,
		} {
			if got[name] == 0 {
				return fmt.Errorf("%s has seen nothing", name)
			}
		}
		return nil
	})
}

// C-MET-2: a participant that is away after the decision is pending, and in
// doubt once the session's timeout has passed; also for a later owner.
func TestAPendingParticipantIsInDoubtAfterTheSessionsTimeout(t *testing.T) {
	store := memlog.NewStore(1)
	const timeout = 1500 * time.Millisecond
	b := start(t, store)
	b.session(t, timeout)
	b.clusters.ends("b", gtc.EndRetry)
	decided := time.Now()
	if r := b.commit(t, 100*time.Millisecond); r.ErrorCode != 0 || r.Outcome == int8(gtc.OutcomeAborted) {
		t.Fatalf("%+v", r)
	}
	eventually(t, func() error { // on a busy machine it is decided after the answer
		if got := gather(t, b.Metrics()); got[`gtc_transactions_open{phase="pending"}`]+got[`gtc_transactions_open{phase="in_doubt"}`] != 1 {
			return errors.New("not decided")
		}
		return nil
	})
	got := gather(t, b.Metrics())
	if p, d := got[`gtc_transactions_open{phase="pending"}`], got[`gtc_transactions_open{phase="in_doubt"}`]; time.Since(decided) < timeout && (p != 1 || d != 0) {
		t.Errorf("before the timeout %v pending and %v in doubt, want 1 and 0", p, d)
	}
	b.want(t, map[string]float64{`gtc_transactions_open{phase="in_doubt"}`: 1, `gtc_transactions_open{phase="pending"}`: 0})
	if oldest := gather(t, b.Metrics())[`gtc_transactions_oldest_age_seconds{phase="in_doubt"}`]; oldest < timeout.Seconds() {
		t.Errorf("the oldest is %v s old, want %v at least", oldest, timeout.Seconds())
	}
	b.stop(t)

	again := start(t, store, func(a *answering) { a.ends("b", gtc.EndRetry) })
	again.want(t, map[string]float64{`gtc_transactions_open{phase="in_doubt"}`: 1})
	again.clusters.ends("b", gtc.EndDone)
	again.want(t, map[string]float64{
		`gtc_transactions_open{phase="in_doubt"}`: 0, `gtc_transactions_ended_total{outcome="committed"}`: 1,
	})
}

// C-MET-1.
func TestATornTransactionIsCountedAndReportedOnceAndShownUntilForgotten(t *testing.T) {
	store := memlog.NewStore(1)
	b := start(t, store)
	b.session(t, time.Minute)
	b.clusters.ends("b", gtc.EndAborted)
	b.commit(t, 10*time.Second)
	b.want(t, map[string]float64{
		`gtc_heuristic_outcomes_total{cluster="b"}`: 1, `gtc_heuristic_outcomes_total{cluster="a"}`: 0, `gtc_heuristic_outcomes`: 1,
	})
	b.stop(t)
	var reports []map[string]any
	for line := range bytes.Lines(b.log.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		if fields["level"] == "error" {
			reports = append(reports, fields)
		}
	}
	if len(reports) != 1 {
		t.Fatalf("%d errors in the log, want one: %v", len(reports), reports)
	}
	for field, want := range map[string]any{"global.transactional.id": "id", "cluster": "b", "producer.id": 7.0, "decided": "commit", "seen": "aborted", "detail": "as the test says"} {
		if reports[0][field] != want {
			t.Errorf("the log says %s=%v, want %v", field, reports[0][field], want)
		}
	}

	again := start(t, store)
	again.want(t, map[string]float64{`gtc_heuristic_outcomes_total{cluster="b"}`: 0, `gtc_heuristic_outcomes`: 1})
	forget := wire.NewPtrResolveGlobalTransactionRequest()
	forget.GlobalTransactionalID, forget.Action = "id", int8(gtc.ResolveForget)
	if r := again.Handle(t.Context(), "", "", forget).(*wire.ResolveGlobalTransactionResponse); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	again.want(t, map[string]float64{`gtc_heuristic_outcomes_total{cluster="b"}`: 0, `gtc_heuristic_outcomes`: 0})
}

func TestATransactionThatAScanSeesOpenIsUndecided(t *testing.T) {
	b := start(t, memlog.NewStore(1))
	b.session(t, time.Minute)
	b.clusters.mu.Lock()
	b.clusters.open["a"] = []gtc.OpenTransaction{{ID: "id", ProducerID: 7, ProducerEpoch: 1, EndTxnVersion: 5, StartMillis: 1}}
	b.clusters.mu.Unlock()
	b.want(t, map[string]float64{`gtc_transactions_open{phase="undecided"}`: 1})
	b.clusters.mu.Lock()
	delete(b.clusters.open, "a")
	b.clusters.mu.Unlock()
	b.want(t, map[string]float64{`gtc_transactions_open{phase="undecided"}`: 0})
}
