package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

// reports reads what the coordinator says in its logs of participants that
// contradict it: each once, when that is durable.
type reports struct {
	names  map[string]string // of the clusters, by their ids
	read   map[string]int64  // of each log
	events []history.Event
}

func newReports(names map[string]string) *reports {
	return &reports{names: names, read: map[string]int64{}}
}

// line is what a report's line has.
type line struct {
	Message  string `json:"message"`
	ID       string `json:"global.transactional.id"`
	Cluster  string `json:"cluster"`
	Producer int64  `json:"producer.id"`
	Epoch    int16  `json:"producer.epoch"`
	Decided  string `json:"decided"`
	Seen     string `json:"seen"`
	Detail   string `json:"detail"`
}

// follow reads a log from where it ended before.
func (r *reports) follow(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err = f.Seek(r.read[path], io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	r.read[path] += int64(whole)
	for said := range bytes.Lines(text[:whole]) {
		if err := r.take(said); err != nil {
			return fmt.Errorf("chaos: %s: %w", path, err)
		}
	}
	return nil
}

// take leaves out what is no report.
func (r *reports) take(said []byte) error {
	var l line
	_ = json.Unmarshal(said, &l) // a panic, for one, is no JSON, and no report
	e := history.Event{
		At: time.Now().UnixNano(), Client: "coordinator", ID: l.ID, Place: history.Place{Cluster: r.names[l.Cluster]},
		Producer: history.Producer{ID: l.Producer, Epoch: l.Epoch}, Detail: strings.TrimSpace(l.Decided + " was decided " + l.Detail),
	}
	switch {
	case strings.HasPrefix(l.Message, "heuristic outcome:"):
		e.Kind = history.Contradicted
		switch l.Seen {
		case "committed":
			e.Result = history.Committed
		case "aborted":
			e.Result = history.Aborted
		default:
			e.Result = history.Unknown
		}
	case strings.HasPrefix(l.Message, "a participant forgot:"):
		e.Kind = history.Reopened
	default:
		return nil
	}
	if e.Place.Cluster == "" {
		return fmt.Errorf("a report about an unknown cluster: %s", said)
	}
	r.events = append(r.events, e)
	return nil
}
