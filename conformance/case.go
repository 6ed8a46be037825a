// Package conformance is a black box suite for any implementation of the role
// that KIP.md describes. It knows a target by addresses and a properties file,
// speaks the protocol over TCP, and stands between the coordinator and its
// participants where the target lets it, so that what the coordinator sends is
// judged and not only what it answers.
//
// A case is a value in the table of its group (cases_*.go): a stable id, the
// clauses of KIP.md that it tests, what its failure means for a user, what it
// needs of the target, a function, and the deliberately wrong targets that it
// has to catch (see package wrong and Prove).
package conformance

import (
	"path"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
)

// Case is one behaviour.
type Case struct {
	// ID is stable: GROUP-NN. A case that is dropped leaves its number unused.
	ID string
	// Clauses are the clauses of KIP.md that it tests.
	Clauses []string
	// Title says the behaviour, Means what it means for a user when it fails.
	Title, Means string
	// Needs are what the target must have; without it the case is not
	// applicable, with that reason.
	Needs []Need
	// Alone cases run one at a time and after the others: they do something to
	// the target that others would feel.
	Alone bool
	// Run fails by r.Failf.
	Run func(r *Run)
	// Wrong are the targets that it must catch, at least one.
	Wrong []wrong.Fault

	group string
}

// Group is the name of the case's group.
func (c *Case) Group() string { return c.group }

// Need is something that a target may lack.
type Need int

// The needs.
const (
	// NeedParticipants is two participants.
	NeedParticipants Need = iota
	// NeedLinks is that the suite stands between the coordinator and the first
	// two participants (participant.<name>.via).
	NeedLinks
	// NeedV5 and NeedV4 are about the transaction.version of the first
	// participant: 2 or higher, and lower.
	NeedV5
	NeedV4
	// NeedHistory is that the first participant tells how a transaction ended:
	// kfake ends one at once, shows Empty then, and takes either end for a
	// repeat.
	NeedHistory
	// NeedUnreachable is a configured cluster that never answers.
	NeedUnreachable
	// NeedMismatch is a configured cluster whose address belongs to another.
	NeedMismatch
	// NeedClosed is a configured cluster that has not opted in.
	NeedClosed
	// NeedPrincipals are the principals reader, stranger and operator.
	NeedPrincipals
	// NeedKill is commands that kill and start the nodes.
	NeedKill
	// NeedPause is commands that pause and resume the nodes.
	NeedPause
	// NeedNodes is more than one node.
	NeedNodes
	// NeedHome is access to the topic of the log.
	NeedHome
	// NeedLogWrite is that the suite may write to that topic as an owner of its
	// partitions would.
	NeedLogWrite
	// NeedMetrics is the address of the metrics.
	NeedMetrics
	// NeedQuickScan is a scan interval of at most a second.
	NeedQuickScan
	// NeedPlainNode is a node of the same implementation without the role.
	NeedPlainNode
	// NeedPlain is a target without TLS, to which raw bytes can be sent, and
	// whose clients the suite can listen in to.
	NeedPlain
)

// groups are the tables, in the order of the report.
var groups = []struct {
	name  string
	cases []Case
}{
	{"wire", wireCases},
	{"discovery", discoveryCases},
	{"lifecycle", slices.Concat(lifecycleCases, orderCases)},
	{"fencing", fencingCases},
	{"timeouts", slices.Concat(timeoutCases, forgetCases, strangerCases)},
	{"recovery", slices.Concat(recoveryCases, limitCases)},
	{"heuristics", slices.Concat(heuristicCases, decidedAgainCases)},
	{"security", slices.Concat(securityCases, rightsCases)},
	{"interoperation", slices.Concat(interoperationCases, offsetCases, clientCases)},
	{"faults", slices.Concat(faultCases, pendingAbortCases)},
}

// Cases are all cases, by group and number.
func Cases() []*Case {
	var all []*Case
	for _, g := range groups {
		for i := range g.cases {
			c := g.cases[i]
			c.group = g.name
			all = append(all, &c)
		}
	}
	return all
}

// Filter selects cases by shell patterns of ids and names of groups; no pattern
// of a kind means all.
type Filter struct{ Cases, Groups []string }

// Select returns the cases that pass.
func (f Filter) Select(cases []*Case) []*Case {
	pass := func(patterns []string, name string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
			ok, err := path.Match(strings.ToLower(p), strings.ToLower(name))
			return err == nil && ok
		})
	}
	var out []*Case
	for _, c := range cases {
		if pass(f.Cases, c.ID) && pass(f.Groups, c.group) {
			out = append(out, c)
		}
	}
	return out
}
