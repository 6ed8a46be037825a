package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
)

func listCommand() *cobra.Command {
	var f conformance.Filter
	var kip string
	cmd := &cobra.Command{
		Use: "list", Short: "The cases, with the clauses of KIP.md that they test", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kip != "" {
				return listClauses(kip)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			cases := f.Select(conformance.Cases())
			for _, c := range cases {
				if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.ID, c.Group(), strings.Join(c.Clauses, " "), c.Title); err != nil {
					return err
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d cases\n", len(cases))
			return err
		},
	}
	filterFlags(cmd, &f)
	cmd.Flags().StringVar(&kip, "kip", "", "write the ids into this KIP.md's list of clauses, and nothing else")
	return cmd
}

func listClauses(kip string) error {
	text, err := os.ReadFile(kip)
	if err != nil {
		return err
	}
	return os.WriteFile(kip, []byte(conformance.ListClauses(string(text))), 0o644)
}

func reportCommand() *cobra.Command {
	var o outputs
	cmd := &cobra.Command{
		Use: "report --html FILE RUN.json...", Short: "Merge runs into one report", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var runs []*report.Run
			for _, name := range files {
				r, err := report.ReadJSON(name)
				if err != nil {
					return err
				}
				runs = append(runs, r)
			}
			return o.write(cmd.OutOrStdout(), runs)
		},
	}
	cmd.Flags().StringVar(&o.html, "html", "", "write one self-contained page")
	cmd.Flags().StringVar(&o.junit, "junit", "", "write JUnit's XML")
	return cmd
}
