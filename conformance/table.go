package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ProofTable is the table of conformance/README.md: each case with each wrong
// target, and what the case said of it. caught is by "ID/text of the fault"; a
// case that was proved elsewhere has no text there.
func ProofTable(caught map[string]string) string {
	var b strings.Builder
	b.WriteString("| case | clauses | a target that … | is caught by |\n| --- | --- | --- | --- |\n")
	for _, c := range Cases() {
		for _, w := range c.Wrong {
			said := caught[c.ID+"/"+w.Text]
			if said == "" && (slices.Contains(c.Needs, NeedHistory) || slices.Contains(c.Needs, NeedPause)) {
				said = "proved in " + kafkaProof
			}
			fmt.Fprintf(&b, "%s%s |\n", ProofRow(c, w.Text), strings.ReplaceAll(said, "|", "\\|"))
		}
	}
	return b.String()
}

// Proofs reads what ProofTable has written.
func Proofs(table string) map[string]string {
	caught := map[string]string{}
	for row := range strings.Lines(table) {
		for _, c := range Cases() {
			for _, w := range c.Wrong {
				if said, found := strings.CutPrefix(row, ProofRow(c, w.Text)); found {
					caught[c.ID+"/"+w.Text] = strings.ReplaceAll(strings.TrimSuffix(said, " |\n"), "\\|", "|")
				}
			}
		}
	}
	return caught
}

// kafkaProof is where the cases are proved that need Apache Kafka, or time.
const kafkaProof = "kafka_test.go"

// ProofRow is the begin of a row of ProofTable.
func ProofRow(c *Case, fault string) string {
	return fmt.Sprintf("| %s | %s | %s | ", c.ID, strings.Join(c.Clauses, " "), fault)
}

// ClauseCases are the ids of the cases by the clause that they test.
func ClauseCases() map[string][]string {
	by := map[string][]string{}
	for _, c := range Cases() {
		for _, clause := range c.Clauses {
			by[clause] = append(by[clause], c.ID)
		}
	}
	return by
}

// Inside is why a clause has no case, and the tests of this repository that hold
// it to the clause instead, by directory.
type Inside struct {
	Why   string
	Tests map[string][]string
}

// Insides are the clauses that cannot be seen from outside in the time of a run.
var Insides = map[string]Inside{
	"C-EXP-2": {"an hour passes, and a node does not start", map[string][]string{
		"gtc/client": {"TestAnIdleClientAsksForItsSessionAgain", "TestATransactionThatBeginsTooLateIsRefused"}, "broker/config": {"TestBadConfigurationIsNamedWithItsLine"},
	}},
	"C-PART-10": {"no released participant keeps prepared transactions", map[string][]string{
		"broker": {"TestALateInitProducerIDThatKeepsDoesNotTearADecision"}, "gtc/verdict": {"TestAKeptTransactionIsTakenOver"},
	}},
	"C-CLI-12": {"no released participant keeps prepared transactions", map[string][]string{
		"gtc/client": {"TestALateInitProducerIDAbortsNothing", "TestAClientThatLostTheIDEndsNothing"}, "gtc/sim": {"TestEveryMutantIsFound"},
	}},
	"C-VIS-3": {"an outsider acts between a client's records and its commit", map[string][]string{
		"gtc/client": {"TestACommitThatIsNotThereIsTold", "TestAnAbortThatWasCommittedByHandIsTold", "TestOffsetsThatAreNotThereAreTold"},
	}},
	"C-REC-5": {"files change at rest", map[string][]string{
		"txnlog/topiclog": {"TestEveryBitOfABatchHeaderIsRefusedOrChangesNothing", "TestABatchThatTheBrokerDoesNotFindIsMissed"},
	}},
	"C-REC-6": {"records are damaged at rest", map[string][]string{
		"txnlog/topiclog": {"TestADamagedIDIsTakenOutByNameAndTheOthersAreServed", "TestALostStretchIsAcceptedByItsOffsetsAlone"},
		"gtc/service":     {"TestAnIDThatWasTakenOutIsHeuristicUntilItIsForgotten"},
	}},
	"C-LOG-6": {"hours and days pass", map[string][]string{
		"txnlog/topiclog": {
			"TestTheClaimIsKeptAlive", "TestAWriterThatWasAsleepTooLongDoesNotWrite", "TestAWriterWhoseMachineWasSuspendedTooLongDoesNotWrite",
			"TestABrokerThatForgetsTheFenceEarlyIsRefused", "TestAnOldOwnersReInitDoesNotTakeThePartitionBack",
		},
	}},
	"C-LOG-7": {"the log's topic is deleted, and its leader moves", map[string][]string{
		"txnlog/topiclog": {"TestALeaderThatMovesIsFollowed", "TestATopicCreatedAnewIsNotTheSameLog"},
	}},
	"C-LOG-8": {"a disk fails", map[string][]string{
		"broker": {"TestNoAnswerLeavesAfterTheDiskHasLostSomething"},
	}},
}

func (x Inside) String() string {
	var tests []string
	for _, dir := range slices.Sorted(maps.Keys(x.Tests)) {
		for _, name := range x.Tests[dir] {
			tests = append(tests, "`"+name+"` in "+dir)
		}
	}
	return x.Why + ": " + strings.Join(tests, ", ")
}

// ListClauses writes the ids of the cases into KIP.md's list of clauses, or why
// there are none, and returns the page.
func ListClauses(kip string) string {
	const heading = "\n## List of clauses\n"
	head, list, found := strings.Cut(kip, heading)
	if !found {
		return kip
	}
	by := ClauseCases()
	lines := strings.Split(list, "\n")
	for i, line := range lines {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
			continue
		}
		clause, subject := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		switch clause {
		case "clause":
			lines[i] = "| clause | subject | cases of the conformance suite |"
		case "---":
			lines[i] = "| --- | --- | --- |"
		default:
			cases := strings.Join(by[clause], " ")
			if inside, ok := Insides[clause]; ok {
				cases = inside.String()
			}
			lines[i] = fmt.Sprintf("| %s | %s | %s |", clause, subject, cases)
		}
	}
	return head + heading + strings.Join(lines, "\n")
}
