package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// auditor asks the coordinator and the clusters whether anything is open.
type auditor struct {
	gtc      *kgo.Client
	clusters map[string]*kadm.Client
	kgos     []*kgo.Client
}

// newAuditor takes the addresses of the coordinator's nodes, and the clusters'
// by their names.
func newAuditor(nodes []string, clusters map[string]string) (*auditor, error) {
	a := &auditor{clusters: map[string]*kadm.Client{}}
	var err error
	if a.gtc, err = a.client(kgo.SeedBrokers(nodes...)); err != nil {
		return nil, err
	}
	for name, addr := range clusters {
		cl, err := a.client(kgo.SeedBrokers(addr))
		if err != nil {
			a.close()
			return nil, err
		}
		a.clusters[name] = kadm.NewClient(cl)
	}
	return a, nil
}

func (a *auditor) client(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(opts, kgo.MaxVersions(wire.Versions()), kgo.RetryTimeout(5*time.Second),
		kgo.RequestTimeoutOverhead(5*time.Second), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err == nil {
		a.kgos = append(a.kgos, cl)
	}
	return cl, err
}

func (a *auditor) close() {
	for _, cl := range a.kgos {
		cl.Close()
	}
}

// open lists everything that is not over: at the coordinator, as transactions
// of the clusters, and as what kafka-transactions find-hanging looks for, a
// producer that holds a partition's readers back. Empty is what it should be.
func (a *auditor) open(ctx context.Context, read *reader) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	found := a.inDoubt(ctx)
	for name, adm := range a.clusters {
		found = append(found, ongoing(ctx, name, adm)...)
		found = append(found, a.held(ctx, name, adm, read)...)
	}
	slices.Sort(found)
	return found
}

// inDoubt asks every node: each answers for the ids that it coordinates.
func (a *auditor) inDoubt(ctx context.Context) []string {
	var found []string
	seeds := a.gtc.SeedBrokers()
	for _, node := range seeds {
		resp, err := wire.NewPtrListGlobalTransactionsRequest().RequestWith(ctx, node)
		if err == nil {
			err = wire.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			found = append(found, fmt.Sprintf("coordinator: %v", err))
			continue
		}
		for _, g := range resp.GlobalTransactions {
			switch g.State {
			case "PrepareCommit", "PrepareAbort", "Ongoing":
				found = append(found, fmt.Sprintf("coordinator: %s is %s for %d ms, waiting for %v", g.GlobalTransactionalID, g.State, g.AgeMillis, g.PendingClusterIDs))
			}
			if g.Heuristic {
				found = append(found, fmt.Sprintf("coordinator: %s has a heuristic outcome", g.GlobalTransactionalID))
			}
		}
	}
	return found
}

// ongoing lists the transactions that a cluster's coordinator has not ended.
func ongoing(ctx context.Context, name string, adm *kadm.Client) []string {
	var found []string
	listed, err := adm.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort"})
	if err != nil {
		return []string{fmt.Sprintf("%s: ListTransactions: %v", name, err)}
	}
	for _, t := range listed.Sorted() {
		if !strings.HasPrefix(t.TxnID, "__") { // the coordinator's own claims
			found = append(found, fmt.Sprintf("%s: transaction %s of producer %d is %s", name, t.TxnID, t.ProducerID, t.State))
		}
	}
	return found
}

// held lists the partitions whose readers are held back, and by whom.
func (a *auditor) held(ctx context.Context, name string, adm *kadm.Client, read *reader) []string {
	var found []string
	fail := func(what string, err error) []string {
		return append(found, fmt.Sprintf("%s: %s: %v", name, what, err))
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fail("ListOffsets", err)
	}
	stable, err := adm.ListCommittedOffsets(ctx, topics...)
	if err == nil {
		err = stable.Error()
	}
	if err != nil {
		return fail("ListOffsets", err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		p := history.Place{Cluster: name, Topic: end.Topic, Partition: end.Partition}
		lso, _ := stable.Lookup(end.Topic, end.Partition)
		switch {
		case lso.Offset < end.Offset:
			found = append(found, fmt.Sprintf("%v: last stable offset %d, end %d", p, lso.Offset, end.Offset))
		case read.behind(p, end.Offset):
			found = append(found, fmt.Sprintf("%v: the reader has not come to the end %d", p, end.Offset))
		}
	})
	var all kadm.TopicsSet
	for _, topic := range topics {
		for p := range partitions {
			all.Add(topic, int32(p))
		}
	}
	producers, err := adm.DescribeProducers(ctx, all)
	if err != nil {
		return fail("DescribeProducers", err)
	}
	producers.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			found = append(found, fmt.Sprintf("%s/%s-%d: producer %d has a transaction open since offset %d", name, p.Topic, p.Partition, p.ProducerID, p.CurrentTxnStartOffset))
		}
	})
	return found
}

// createTopics makes the topics of the load.
func createTopics(ctx context.Context, addr string) error {
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer adm.Close()
	created, err := adm.CreateTopics(ctx, partitions, 1, nil, topics...)
	if err != nil {
		return err
	}
	return created.Error()
}
