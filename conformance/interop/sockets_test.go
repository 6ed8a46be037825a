//go:build kafka

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// step is a line that python/gtc_sockets.py prints, with the fields of KIP.md.
type step struct {
	Step, Name         string
	ID                 string `json:"id"`
	TransactionVersion int    `json:"transaction_version"`
	Ranges             map[string][2]int
	Values             []string

	ErrorCode    int
	ErrorMessage *string
	Host         string
	GlobalEpoch  int32
	NextSequence int64 `json:"Sequence"`
	Outcome      int8
	Participants []answered

	Sequence           int64      `json:"sequence"`     // of the request
	Asked              []answered `json:"participants"` // of the request
	GlobalTransactions []struct {
		GlobalTransactionalID, State string
		ErrorCode                    int
		Sequence                     int64
		SessionEnded                 bool
		ClusterIDs                   []string
	}
	UnknownStateFilters []string
}

type answered struct {
	ClusterID     string
	State         int8
	ProducerID    int64
	ProducerEpoch int16
}

// testSockets: the protocol as KIP.md has it, by sockets of Python, over an
// Apache Kafka with this transaction.version and a mini-broker.
func testSockets(t *testing.T, r *rig, transactionVersion int) {
	id := r.name("sockets")
	steps := sockets(t, r, r.topic(t, id), id)

	if got := steps["cluster us"]; got.ID != r.us.id || got.TransactionVersion != transactionVersion {
		t.Errorf("us is %s with transaction.version %d, want %s with %d", got.ID, got.TransactionVersion, r.us.id, transactionVersion)
	}
	ranges := steps["versions"].Ranges
	for _, key := range []string{"1000", "1001", "1002", "1003", "1004"} {
		if got, found := ranges[key]; !found || got != [2]int{0, 0} {
			t.Errorf("API key %s is advertised with versions %v (%v), want 0 to 0", key, got, found)
		}
	}
	if ranges["10"][1] != 7 {
		t.Errorf("FindCoordinator is advertised with versions %v, want 7 as the highest", ranges["10"])
	}
	first := steps["init"]
	for name, want := range map[string]struct {
		code    int
		outcome int8
	}{
		"find 6":                 {42, 0},
		"find 7":                 {0, 0},
		"init":                   {0, 0},
		"init again":             {0, 0},
		"commit":                 {0, 1},
		"commit again":           {0, 1},
		"commit again as abort":  {0, 1},
		"abort":                  {0, 2},
		"abort again as commit":  {0, 2},
		"too old":                {1005, 0},
		"one participant":        {0, 1},
		"list":                   {0, 0},
		"nothing to forget":      {48, 0},
		"second session":         {0, 0},
		"first session again":    {90, 0},
		"fenced":                 {90, 0},
		"second session commits": {0, 1},
	} {
		got, found := steps[name]
		if !found || got.ErrorCode != want.code || got.Outcome != want.outcome {
			t.Errorf("%s: %+v (%v), want error %d and outcome %d", name, got, found, want.code, want.outcome)
		}
	}
	if again := steps["init again"]; again.GlobalEpoch != first.GlobalEpoch || again.NextSequence != first.NextSequence {
		t.Errorf("InitGlobalTxn again: %+v, want %+v", again, first)
	}
	for repeat, of := range map[string]string{"commit again": "commit", "commit again as abort": "commit", "abort again as commit": "abort"} {
		if got, want := steps[repeat].Participants, steps[of].Participants; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want as the first time %+v", repeat, got, want)
		}
	}
	// The abort of the client itself used no sequence.
	for i, name := range []string{"commit", "abort", "one participant"} {
		if got, want := steps[name].Sequence, first.NextSequence+int64(i); got != want {
			t.Errorf("%s has sequence %d, want %d", name, got, want)
		}
	}
	if got := steps["second session"]; got.GlobalEpoch != first.GlobalEpoch+1 || got.NextSequence != first.NextSequence+3 {
		t.Errorf("second session: %+v, want epoch %d and sequence %d", got, first.GlobalEpoch+1, first.NextSequence+3)
	}
	goingOn(t, r, steps, transactionVersion)
	told(t, steps, id)

	for _, s := range r.sites() {
		want := []string{"committed 1", "committed 2", "second session"}
		if s.name == "us" {
			want = slices.Insert(want, 2, "one participant")
		}
		if got := s.visible(t, id); !slices.Equal(got, want) {
			t.Errorf("%s shows %v, want %v", s.name, got, want)
		}
		if got := steps["read "+s.name].Values; !slices.Equal(got, want) {
			t.Errorf("the script reads %v of %s, want %v", got, s.name, want)
		}
	}
}

// goingOn: what the answers say a producer goes on with (C-PART-6).
func goingOn(t *testing.T, r *rig, steps map[string]step, transactionVersion int) {
	t.Helper()
	for _, name := range []string{"commit", "abort", "one participant"} {
		s := steps[name]
		if len(s.Participants) != len(s.Asked) {
			t.Errorf("%s: %d participants are answered, want %d", name, len(s.Participants), len(s.Asked))
			continue
		}
		for i, asked := range s.Asked {
			want := answered{asked.ClusterID, 1, asked.ProducerID, asked.ProducerEpoch + 1}
			if asked.ClusterID == r.us.id && transactionVersion < 2 {
				want.ProducerEpoch = asked.ProducerEpoch
				if name != "commit" { // C-END-17: nobody voted
					want.ProducerID, want.ProducerEpoch = -1, -1
				}
			}
			if got := s.Participants[i]; got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	}
}

// told: the answers for operators.
func told(t *testing.T, steps map[string]step, id string) {
	t.Helper()
	described := steps["describe"].GlobalTransactions
	if len(described) != 2 || described[1].ErrorCode != 105 {
		t.Fatalf("described %+v, want two, the second not found", described)
	}
	if d := described[0]; d.GlobalTransactionalID != id || d.State != "CompleteCommit" || d.Sequence != steps["one participant"].Sequence ||
		d.SessionEnded || len(d.ClusterIDs) != 2 {
		t.Errorf("described %+v", d)
	}
	list := steps["list"]
	if len(list.GlobalTransactions) != 1 || list.GlobalTransactions[0].State != "CompleteCommit" || !slices.Equal(list.UnknownStateFilters, []string{"Nonsense"}) {
		t.Errorf("listed %+v", list)
	}
}

// TestSocketsAgreeWithKafka: what Kafka's own protocol types have written is
// read, and written back, by the messages of python/gtc_messages.py.
func TestSocketsAgreeWithKafka(t *testing.T) {
	out, err := exec.CommandContext(deadline(t), "python3", "-B", "python/golden.py", "../../wire/testdata/golden").CombinedOutput()
	const messages = 6 * 2 * 6 // APIs, request and response, cases
	if got := strings.TrimSpace(string(out)); err != nil || got != strconv.Itoa(messages) {
		t.Errorf("golden.py: %v, %s; want %d messages", err, got, messages)
	}
}

// sockets runs the script and returns its steps by name.
func sockets(t *testing.T, r *rig, topic, id string) map[string]step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // of many steps
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "python3", "-B", "python/gtc_sockets.py", "--gtc", r.gtc.Addr,
		"--cluster", "us="+r.us.addr, "--cluster", "eu="+r.eu.addr, "--topic", topic, "--id", id)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("gtc_sockets.py: %v\n%s%s", err, &stdout, &stderr)
	}
	steps := make(map[string]step)
	for d := json.NewDecoder(&stdout); ; {
		var s step
		switch err := d.Decode(&s); {
		case errors.Is(err, io.EOF):
			return steps
		case err != nil:
			t.Fatal(err)
		case s.Step == "cluster" || s.Step == "read":
			s.Step += " " + s.Name
		}
		steps[s.Step] = s
	}
}
