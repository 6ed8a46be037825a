package conformance

import (
	"fmt"
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

// ListClauses writes the ids of the cases into KIP.md's list of clauses, and
// returns the page.
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
			lines[i] = fmt.Sprintf("| %s | %s | %s |", clause, subject, strings.Join(by[clause], " "))
		}
	}
	return head + heading + strings.Join(lines, "\n")
}
