package gtc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// TestScenarios plays the traces of testdata. Each command is an event; below
// it stand, in order, the records that are written ("log", or "log lazily")
// and the effects that may leave once they are durable ("->"). "crash" drops
// the machine and loads a new one from the log.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		sc := newScenario()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return sc.run(t, d)
		})
	})
}

type scenario struct {
	m        *Machine
	now      Time
	requests int
	log      []txnlog.Record
	lazy     int // records at the end of the log that are not forced yet
	attempts map[string]uint64
	epochs   map[string]int32
}

// scenarioConfig has us and eu configured.
func scenarioConfig() Config {
	c := DefaultConfig()
	c.Clusters = 2
	return c
}

func newScenario() *scenario {
	sc := &scenario{attempts: map[string]uint64{}, epochs: map[string]int32{}}
	sc.m = NewMachine(scenarioConfig())
	sc.apply(sc.m.Recover(sc.now))
	return sc
}

func (sc *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "crash":
		return sc.crash(d)
	case "compact":
		latest := map[string]int{}
		for i, r := range sc.log {
			latest[r.GlobalTransactionalID] = i
		}
		var kept []txnlog.Record
		for i, r := range sc.log {
			if latest[r.GlobalTransactionalID] == i && r.Value != nil {
				kept = append(kept, r)
			}
		}
		sc.log, sc.lazy = kept, 0
		return fmt.Sprintf("%d records\n", len(kept))
	case "describe":
		return sc.describe(arg(d, "id"))
	case "time":
		sc.now.Mono += num(d, "after")
		sc.now.Wall += num(d, "after") + num(d, "wall-step")
		at, ok := sc.m.NextDeadline()
		if !ok || at > sc.now.Mono {
			return "nothing is due\n"
		}
		return sc.step(t, Tick{})
	}
	return sc.step(t, sc.event(t, d))
}

func (sc *scenario) event(t *testing.T, d *datadriven.TestData) Event {
	t.Helper()
	id := "pay"
	if d.HasArg("id") {
		id = arg(d, "id")
	}
	switch d.Cmd {
	case "init":
		sc.requests++
		return InitRequest{
			Request: RequestID(sc.requests), ID: id, TimeoutMillis: int32(num(d, "timeout")),
			ClusterIDs: list(d, "clusters"), InstanceID: txnlog.UUID{15: byte(num(d, "instance"))},
		}
	case "checked":
		return ParticipantsChecked{ID: id, Attempt: sc.attempts[id], Results: parse(d, "results", parseCheck)}
	case "end":
		sc.requests++
		r := EndRequest{
			Request: RequestID(sc.requests), ID: id, GlobalEpoch: int32(num(d, "epoch")), Sequence: num(d, "sequence"),
			Commit: d.HasArg("commit"), Participants: parse(d, "of", parseRef), TimeoutMillis: 30_000,
		}
		if d.HasArg("timeout") {
			r.TimeoutMillis = int32(num(d, "timeout"))
		}
		return r
	case "votes":
		return VotesTaken{ID: id, GlobalEpoch: int32(num(d, "epoch")), Sequence: num(d, "sequence"), Votes: parse(d, "votes", parseVote)}
	case "ended":
		return EndAnswered{ID: id, Sequence: num(d, "sequence"), Participant: parseRef(arg(d, "of")), Answer: parseAnswer(arg(d, "as"))}
	case "scan":
		ev := ScanCompleted{ClusterID: arg(d, "cluster"), BeganMono: sc.now.Mono - num(d, "took")}
		if d.HasArg("open") {
			ev.Open = parse(d, "open", parseOpen)
		}
		if d.HasArg("failed") {
			ev.Failed = arg(d, "failed")
		}
		return ev
	case "resolve":
		sc.requests++
		actions := map[string]ResolveAction{"abort": ResolveAbort, "retry": ResolveRetry, "forget": ResolveForget, "give-up": ResolveGiveUp}
		return ResolveRequest{Request: RequestID(sc.requests), ID: id, Action: actions[arg(d, "action")], ClusterID: arg(d, "cluster")}
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return nil
}

func (sc *scenario) step(t *testing.T, ev Event) string {
	t.Helper()
	out := sc.apply(sc.m.Step(sc.now, ev))
	if err := sc.m.Check(); err != nil {
		t.Errorf("after %T: %v", ev, err)
	}
	return out
}

func (sc *scenario) apply(out Output) string {
	var b strings.Builder
	for _, c := range out.Changes {
		sc.m.Apply(c)
		if p, ok := c.(Persist); ok {
			sc.log = append(sc.log, p.Record)
			how := "log"
			sc.lazy++
			if p.Lazy {
				how = "log lazily"
			} else {
				sc.lazy = 0
			}
			fmt.Fprintf(&b, "%s %s\n", how, renderRecord(p.Record))
		}
	}
	for _, e := range out.Effects {
		if c, ok := e.(CheckParticipants); ok {
			sc.attempts[c.ID] = c.Attempt
		}
		fmt.Fprintf(&b, "-> %s\n", renderEffect(e))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// crash loses the lazy records unless "kept" is given.
func (sc *scenario) crash(d *datadriven.TestData) string {
	if !d.HasArg("kept") {
		sc.log = sc.log[:len(sc.log)-sc.lazy]
	}
	sc.lazy = 0
	sc.m = NewMachine(scenarioConfig())
	for _, r := range sc.log {
		sc.m.Apply(Persist{Record: r})
	}
	return sc.apply(sc.m.Recover(sc.now))
}

func (sc *scenario) describe(id string) string {
	d, ok := sc.m.Describe(sc.now, id)
	if !ok {
		return "unknown\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s epoch=%d sequence=%d age=%d heuristic=%v\n", d.State, d.Value.GlobalEpoch, d.Value.Sequence, d.AgeMillis, d.Heuristic)
	for _, p := range d.Participants {
		fmt.Fprintf(&b, "  %s age=%d", renderParticipant(p.Participant), p.AgeMillis)
		if p.Leftover {
			b.WriteString(" leftover")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func arg(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func num(d *datadriven.TestData, key string) int64 {
	n, _ := strconv.ParseInt(arg(d, key), 10, 64)
	return n
}

func list(d *datadriven.TestData, key string) []string { return strings.Split(arg(d, key), ",") }

func parse[T any](d *datadriven.TestData, key string, one func(string) T) []T {
	var out []T
	for _, s := range list(d, key) {
		out = append(out, one(strings.TrimSpace(s)))
	}
	return out
}

// parseRef reads us:7/3, cluster:producer id/epoch.
func parseRef(s string) ParticipantRef {
	cluster, rest, _ := strings.Cut(s, ":")
	pid, epoch, _ := strings.Cut(rest, "/")
	p, _ := strconv.ParseInt(pid, 10, 64)
	e, _ := strconv.ParseInt(epoch, 10, 16)
	return ParticipantRef{ClusterID: cluster, ProducerID: p, ProducerEpoch: int16(e)}
}

func parseCheck(s string) CheckResult {
	cluster, code, _ := strings.Cut(s, ":")
	codes := map[string]CheckCode{
		"ok": CheckOK, "unavailable": CheckUnavailable, "unknown": CheckUnknownCluster,
		"mismatch": CheckClusterIDMismatch, "not-opted-in": CheckNotOptedIn, "unauthorized": CheckUnauthorized,
	}
	return CheckResult{ClusterID: cluster, Code: codes[code], Detail: code}
}

// parseVote reads prepared, refused or unavailable, with the EndTxn
// version: prepared/v5.
func parseVote(s string) Vote {
	code, version, _ := strings.Cut(s, "/v")
	v, _ := strconv.ParseInt(version, 10, 16)
	codes := map[string]VoteCode{
		"prepared": VotePrepared, "refused": VoteRefused, "unavailable": VoteUnavailable,
	}
	return Vote{Code: codes[code], EndTxnVersion: int16(v), Detail: code, AuditTopic: "orders"}
}

// parseAnswer reads done/v5/7/4 (outcome, EndTxn version, next producer id and
// epoch) with ! behind the outcome when an earlier copy may still arrive.
func parseAnswer(s string) EndAnswer {
	f := strings.Split(s, "/")
	a := EndAnswer{NextProducerID: -1, NextProducerEpoch: -1, Detail: strings.TrimSuffix(f[0], "!")}
	a.Uncertain = strings.HasSuffix(f[0], "!")
	a.Outcome = map[string]EndOutcome{
		"retry": EndRetry, "done": EndDone, "committed": EndCommitted, "aborted": EndAborted, "unknown": EndUnknown, "unfenced": EndUnfenced,
	}[a.Detail]
	if a.Outcome == EndDone {
		a.Detail = ""
	}
	if len(f) > 1 {
		v, _ := strconv.ParseInt(strings.TrimPrefix(f[1], "v"), 10, 16)
		a.EndTxnVersion = int16(v)
	}
	if len(f) > 3 {
		ref := parseRef("x:" + f[2] + "/" + f[3])
		a.NextProducerID, a.NextProducerEpoch = ref.ProducerID, ref.ProducerEpoch
	}
	return a
}

// parseOpen reads pay:7/3/v5, id:producer id/epoch/EndTxn version, with @start
// behind it when the start matters.
func parseOpen(s string) OpenTransaction {
	s, start, _ := strings.Cut(s, "@")
	i := strings.LastIndex(s, "/v")
	ref := parseRef(s[:i])
	v, _ := strconv.ParseInt(s[i+2:], 10, 16)
	at, _ := strconv.ParseInt(start, 10, 64)
	return OpenTransaction{
		ID: ref.ClusterID, ProducerID: ref.ProducerID, ProducerEpoch: ref.ProducerEpoch,
		EndTxnVersion: int16(v), AuditTopic: "orders", StartMillis: at,
	}
}

func renderRecord(r txnlog.Record) string {
	v := r.Value
	if v == nil {
		return r.GlobalTransactionalID + " tombstone"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s epoch=%d sequence=%d", r.GlobalTransactionalID, NameOf(v.State), v.GlobalEpoch, v.Sequence)
	if v.State == txnlog.StateEmpty {
		fmt.Fprintf(&b, " clusters=%s", strings.Join(v.ClusterIDs, ","))
	}
	if v.SessionEnded {
		b.WriteString(" session-ended")
	}
	for _, p := range v.Participants {
		b.WriteString(" " + renderParticipant(p))
	}
	for _, p := range v.Leftovers {
		b.WriteString(" leftover " + renderParticipant(p))
	}
	if v.Reason != "" {
		fmt.Fprintf(&b, " (%s)", v.Reason)
	}
	return b.String()
}

func renderParticipant(p txnlog.Participant) string {
	names := map[txnlog.ParticipantState]string{
		txnlog.ParticipantPending: "pending", txnlog.ParticipantComplete: "complete",
		txnlog.ParticipantHeuristicCommit: "HEURISTIC-COMMIT", txnlog.ParticipantHeuristicAbort: "HEURISTIC-ABORT",
		txnlog.ParticipantHeuristicUnknown: "HEURISTIC-UNKNOWN",
		txnlog.ParticipantOrphaned:         "orphaned",
	}
	s := fmt.Sprintf("[%s:%d/%d v%d %s", p.ClusterID, p.ProducerID, p.ProducerEpoch, p.EndTxnVersion, names[p.State])
	switch {
	case p.State == txnlog.ParticipantPending:
	case p.NextProducerID < 0:
		s += ", initialise again"
	default:
		s += fmt.Sprintf(", goes on %d/%d", p.NextProducerID, p.NextProducerEpoch)
	}
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s + "]"
}

func renderEffect(e Effect) string {
	switch e := e.(type) {
	case CheckParticipants:
		return "check " + strings.Join(e.ClusterIDs, ",")
	case TakeVotes:
		var refs []string
		for _, r := range e.Participants {
			refs = append(refs, fmt.Sprintf("%s:%d/%d", r.ClusterID, r.ProducerID, r.ProducerEpoch))
		}
		return fmt.Sprintf("vote %s by %d", strings.Join(refs, ","), e.DeadlineMono)
	case EndTxn:
		verb := "abort"
		if e.Commit {
			verb = "commit"
		}
		s := fmt.Sprintf("EndTxn(%s) %s:%d/%d v%d", verb, e.Participant.ClusterID, e.Participant.ProducerID, e.Participant.ProducerEpoch, e.Participant.EndTxnVersion)
		switch {
		case e.Fenced:
			s += " one-phase fenced"
		case e.OnePhase:
			s += " one-phase"
		case e.Sequence == 0:
			s += " leftover"
		}
		return s
	case Reply:
		return fmt.Sprintf("reply %d: %s", e.Request, renderResponse(e.Response))
	}
	panic(e)
}

func renderResponse(r Response) string {
	codes := map[Code]string{
		CodeConcurrentTransactions: "CONCURRENT_TRANSACTIONS", CodeFenced: "PRODUCER_FENCED", CodeInvalidRequest: "INVALID_REQUEST",
		CodeInvalidTxnState: "INVALID_TXN_STATE", CodeInvalidTimeout: "INVALID_TRANSACTION_TIMEOUT", CodeUnknownID: "TRANSACTIONAL_ID_NOT_FOUND",
		CodeOutcomeTooOld: "GLOBAL_TRANSACTION_TOO_OLD", CodeParticipantUnavailable: "PARTICIPANT_NOT_AVAILABLE",
		CodeUnknownParticipant: "UNKNOWN_PARTICIPANT", CodeClusterIDMismatch: "PARTICIPANT_CLUSTER_ID_MISMATCH",
		CodeNotOptedIn: "PARTICIPANT_NOT_ENABLED", CodeParticipantUnauthorized: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
		CodeHeuristicOutcome: "HEURISTIC_OUTCOME", CodePolicyViolation: "POLICY_VIOLATION",
	}
	var parts []string
	if r.Code != CodeNone {
		parts = append(parts, codes[r.Code])
	}
	if len(r.Participants) > 0 || r.Outcome != OutcomeUnknown {
		parts = append(parts, map[Outcome]string{OutcomeUnknown: "outcome unknown", OutcomeCommitted: "committed", OutcomeAborted: "aborted"}[r.Outcome])
	}
	if r.GlobalEpoch > 0 {
		parts = append(parts, fmt.Sprintf("epoch=%d sequence=%d", r.GlobalEpoch, r.Sequence))
	}
	for _, p := range r.Participants {
		parts = append(parts, renderParticipant(p))
	}
	if r.Message != "" {
		parts = append(parts, "("+r.Message+")")
	}
	if len(parts) == 0 {
		return "ok " + string(NameOf(r.State))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}
