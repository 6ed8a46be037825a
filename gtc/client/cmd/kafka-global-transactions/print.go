package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kafka-gtc/kafka-gtc/wire"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// printer shows answers to a person, or exactly, as JSON, one object a line.
type printer struct {
	out  io.Writer
	json bool
}

func (p printer) list(all []wire.ListGlobalTransactionsResponseGlobalTransaction) error {
	if p.json {
		return encode(p.out, all...)
	}
	var w strings.Builder
	w.WriteString("ID\tSTATE\tEPOCH\tSEQUENCE\tAGE\tWAITING FOR\tHEURISTIC\n")
	for _, one := range all {
		heuristic := ""
		if one.Heuristic {
			heuristic = "HEURISTIC"
		}
		fmt.Fprintf(&w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", plain.Name(one.GlobalTransactionalID), plain.Name(one.State), one.GlobalEpoch, one.Sequence,
			age(one.AgeMillis), plain.Names(one.PendingClusterIDs), heuristic)
	}
	return p.table(w.String())
}

func (p printer) describe(one wire.DescribeGlobalTransactionsResponseGlobalTransaction) error {
	if p.json {
		return encode(p.out, one)
	}
	var w strings.Builder
	fmt.Fprintf(&w, "global transactional id\t%s\n", plain.Name(one.GlobalTransactionalID))
	fmt.Fprintf(&w, "state\t%s\n", plain.Name(one.State))
	fmt.Fprintf(&w, "global epoch, sequence\t%d, %d\n", one.GlobalEpoch, one.Sequence)
	fmt.Fprintf(&w, "session\ttimeout %v, clusters %s%s\n", time.Duration(one.TimeoutMillis)*time.Millisecond,
		plain.Names(one.ClusterIDs), map[bool]string{true: ", ended"}[one.SessionEnded])
	if one.DecisionTimestampMillis >= 0 {
		fmt.Fprintf(&w, "decided\t%s\n", time.UnixMilli(one.DecisionTimestampMillis).UTC().Format(time.RFC3339))
	}
	if one.Reason != nil {
		fmt.Fprintf(&w, "reason\t%s\n", plain.Text(*one.Reason))
	}
	for _, x := range one.Participants {
		text := states[x.State]
		if x.OpenSinceMillis >= 0 {
			text += " since " + age(x.OpenSinceMillis)
		}
		if x.Message != nil {
			text += ": " + plain.Text(*x.Message)
		}
		fmt.Fprintf(&w, "participant %s\tproducer %d/%d\t%s\n", plain.Name(x.ClusterID), x.ProducerID, x.ProducerEpoch, text)
	}
	return p.table(w.String())
}

// table aligns columns that are set apart by tabs.
func (p printer) table(text string) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return w.Flush()
}

func (p printer) resolved(id, state string) error {
	if p.json {
		return encode(p.out, map[string]string{"GlobalTransactionalID": id, "State": state})
	}
	_, err := fmt.Fprintf(p.out, "%s is now %s\n", plain.Name(id), plain.Name(state))
	return err
}

// encode prints values as JSON, each on a line. It is exact, and may be looked at.
func encode[T any](out io.Writer, values ...T) error {
	for _, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if _, err = out.Write(plain.JSON(append(text, '\n'))); err != nil {
			return err
		}
	}
	return nil
}

// states are the words for a participant's state.
var states = map[int8]string{
	wire.ParticipantPending:          "pending",
	wire.ParticipantComplete:         "complete",
	wire.ParticipantHeuristicCommit:  "HEURISTIC: committed against the decision",
	wire.ParticipantHeuristicAbort:   "HEURISTIC: aborted against the decision",
	wire.ParticipantHeuristicUnknown: "HEURISTIC: ended, nobody can tell how",
	wire.ParticipantOrphaned:         "orphaned: the abort of an earlier transaction is pending",
}

func age(millis int64) string {
	if millis < 0 {
		return "-"
	}
	return (time.Duration(millis) * time.Millisecond).String()
}

// verified shows what each partition has of a transaction. To a person, those with
// nothing are counted.
func (p printer) verified(tx described, all []finding) error {
	if p.json {
		return encode(p.out, all...)
	}
	var w strings.Builder
	fmt.Fprintf(&w, "%s: %s, global epoch %d, sequence %d\n", plain.Name(tx.GlobalTransactionalID), plain.Name(tx.State), tx.GlobalEpoch, tx.Sequence)
	w.WriteString("PARTICIPANT\tPRODUCER\tDECISION\tPARTITION\tTOPIC ID\tLOG\tVERDICT\tSEEN\n")
	empty := 0
	for _, one := range all {
		if one.Verdict == nothing {
			empty++
			continue
		}
		place, log := plain.Name(one.Topic), ""
		if one.Partition >= 0 {
			place, log = fmt.Sprintf("%s-%d", place, one.Partition), fmt.Sprintf("%d to %d", one.LogStart, one.LogEnd)
		}
		fmt.Fprintf(&w, "%s (%s)\t%d/%d\t%s\t%s\t%s\t%s\t%s\t%s\n", plain.Name(one.Participant), plain.Name(one.ClusterID), one.ProducerID, one.ProducerEpoch, one.Decision,
			place, one.TopicID, log, one.Verdict, plain.Text(one.Says))
	}
	fmt.Fprintf(&w, "%d partitions show nothing of it\n", empty)
	return p.table(w.String())
}
