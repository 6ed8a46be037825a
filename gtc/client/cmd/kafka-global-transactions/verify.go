package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// settles is how long what may be about to pass has to, before a second look: a
// marker follows the end of its transaction within milliseconds.
const settles = 2 * time.Second

const verifyHelp = `Asks the coordinator for the newest transaction of an id, and its participants'
partitions, read uncommitted, for what they show of it: records, the markers that
ended them, what is still open, and where the log begins. No cluster says by itself
that an operator's marker, DeleteRecords, retention or a topic created anew has
taken away what is committed.

  verify payments-1 --participant us=us1:9092,us2:9092 --participant eu=eu1:9092 \
      --participant-config eu=eu.properties --topic orders --topic eu:bills

Exit code 0: all agrees with the decision. 1: something contradicts it, and is
named: a marker of the other kind, records that are gone, a transaction that is
still open after its end. 2: no contradiction, but not all could be asked.

--topic is a topic that the transaction wrote to: nothing there contradicts a commit.
With --all-topics the others are looked at too, __consumer_offsets (group offsets)
among them; without --topic, one of them has to show something. READ on the topics
is needed, and DESCRIBE_CONFIGS, or a topic counts as compacted, from which records
may go. All batches are read from the session's timeout before the decision on, or
from the log's start where their time stamps do not tell.

Below transaction.version 2 a producer epoch names many transactions. They are told
apart by the times of their markers, and records that are gone from the beginning
are not missed.`

// places says where to look.
type places struct {
	topics []string // of every participant, or PARTICIPANT:TOPIC
	all    bool
}

// of are the named topics of a participant. No topic's name has a colon.
func (p places) of(participant string) []string {
	var found []string
	for _, t := range p.topics {
		name, topic, of := strings.Cut(t, ":")
		switch {
		case !of:
			found = append(found, t)
		case name == participant:
			found = append(found, topic)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// verifyFlags are what "verify" is asked for.
type verifyFlags struct {
	participants map[string]string // bootstrap servers by name
	configs      map[string]string // files by name
	where        places
	bound        time.Duration
}

// contradictionError is exit code 1; every other one of verify is 2.
type contradictionError struct{ found int }

func (e contradictionError) Error() string {
	return fmt.Sprintf("places that contradict the decision: %d", e.found)
}

// exitCode of an error of a command.
func exitCode(cmd *cobra.Command, err error) int {
	if cmd.Name() == "verify" && !errors.As(err, new(contradictionError)) {
		return 2
	}
	return 1
}

func verifyCommand(connect func() ([]string, []kgo.Opt, error), asJSON *bool) *cobra.Command {
	var f verifyFlags
	var participants, configs []string
	cmd := &cobra.Command{
		Use:   "verify ID --participant NAME=HOST:PORT... --topic [NAME:]TOPIC...|--all-topics",
		Short: "What the participants' partitions really show of an id's newest transaction",
		Long:  verifyHelp, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if f.participants, err = named("--participant", participants); err != nil {
				return err
			}
			if f.configs, err = named("--participant-config", configs); err != nil {
				return err
			}
			if err = f.check(); err != nil {
				return err
			}
			bootstrap, access, err := connect()
			if err != nil {
				return err
			}
			a, err := newAdmin(bootstrap, access, printer{out: cmd.OutOrStdout(), json: *asJSON})
			if err != nil {
				return err
			}
			defer a.close()
			ctx, cancel := context.WithTimeout(cmd.Context(), f.bound)
			defer cancel()
			return f.verify(ctx, a, args[0])
		},
	}
	cmd.Flags().StringArrayVar(&participants, "participant", nil, "NAME=HOST:PORT: a cluster to look at, more brokers after commas; the name is yours, the cluster says its id")
	cmd.Flags().StringArrayVar(&configs, "participant-config", nil, "NAME=FILE: its client properties, as --command-config")
	cmd.Flags().StringArrayVar(&f.where.topics, "topic", nil, "a topic that the transaction wrote to on every participant, NAME:TOPIC on one")
	cmd.Flags().BoolVar(&f.where.all, "all-topics", false, "look at all topics")
	cmd.Flags().DurationVar(&f.bound, "timeout", 10*timeout, "for all of it")
	cmd.MarkFlagsOneRequired("topic", "all-topics")
	return cmd
}

// named reads NAME=VALUE.
func named(flag string, given []string) (map[string]string, error) {
	values := map[string]string{}
	for _, g := range given {
		name, value, ok := strings.Cut(g, "=")
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%s %s: it has the form NAME=VALUE", flag, g)
		}
		if values[name] != "" {
			return nil, fmt.Errorf("%s: %s is there twice; more brokers come after commas", flag, name)
		}
		values[name] = value
	}
	return values, nil
}

func (f *verifyFlags) check() error {
	if len(f.participants) == 0 {
		return errors.New("--participant is missing: NAME=HOST:PORT of each cluster to look at")
	}
	for name := range f.configs {
		if f.participants[name] == "" {
			return fmt.Errorf("--participant-config %s: no --participant has this name", name)
		}
	}
	for _, t := range f.where.topics {
		if name, topic, of := strings.Cut(t, ":"); of && (f.participants[name] == "" || topic == "") {
			return fmt.Errorf("--topic %s: before the colon stands the name of a --participant", t)
		}
	}
	return nil
}

// verify looks, and once more where what it saw may be about to pass.
func (f *verifyFlags) verify(ctx context.Context, a *admin, id string) error {
	clusters, err := f.open(ctx)
	defer func() {
		for _, c := range clusters {
			c.cl.Close()
		}
	}()
	if err != nil {
		return err
	}
	for second := false; ; second = true {
		tx, err := a.described(ctx, id)
		if err != nil {
			return fmt.Errorf("%s: %w", plain.Name(id), err)
		}
		all, err := f.look(ctx, clusters, tx)
		if err != nil {
			return err
		}
		if !second && slices.ContainsFunc(all, func(one finding) bool { return one.Verdict == unsettled }) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(settles):
			}
			continue
		}
		for i := range all {
			if all[i].Verdict == unsettled {
				all[i].Verdict = contradicts
			}
		}
		return errors.Join(a.out.verified(tx, all), judged(all))
	}
}

// judged sums up.
func judged(all []finding) error {
	count := map[verdict]int{}
	for _, one := range all {
		count[one.Verdict]++
	}
	switch {
	case count[contradicts] > 0:
		return contradictionError{count[contradicts]}
	case count[notRead] > 0:
		return fmt.Errorf("places that could not be looked at: %d", count[notRead])
	}
	return nil
}

// open reaches all clusters. A cluster behind two names would be looked at once.
func (f *verifyFlags) open(ctx context.Context) (map[string]*cluster, error) {
	clusters := map[string]*cluster{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.participants)) {
		access, err := readAccess(f.configs[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("--participant-config %s: %w", name, err))
			continue
		}
		c, err := openCluster(ctx, name, strings.Split(f.participants[name], ","), access)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if other := clusters[c.id]; other != nil {
			c.cl.Close()
			errs = append(errs, fmt.Errorf("--participant %s and %s are one cluster, %s", other.name, name, plain.Name(c.id)))
			continue
		}
		clusters[c.id] = c
	}
	return clusters, errors.Join(errs...)
}

// look is at every participant that the coordinator names.
func (f *verifyFlags) look(ctx context.Context, clusters map[string]*cluster, tx described) ([]finding, error) {
	var all []finding
	for _, p := range tx.Participants {
		c := clusters[p.ClusterID]
		if c == nil {
			all = append(all, finding{
				Participant: "-", ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, Decision: decisionOf(tx, p),
				Partition: -1, Verdict: notRead, Says: "no --participant leads to this cluster",
			})
			continue
		}
		if err := c.learn(ctx); err != nil { // its topics, as they are now
			return nil, fmt.Errorf("participant %s: %w", c.name, err)
		}
		all = append(all, c.look(ctx, tx, p, f.where)...)
	}
	return all, nil
}
