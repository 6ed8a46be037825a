package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
)

// Participant is a cluster, asked who it is.
type Participant struct {
	Name string
	// ID is the cluster id that its brokers report.
	ID string
	// EndTxn is the version of EndTxn that ends its transactions, by its
	// finalized transaction.version: 5, or 4.
	EndTxn int16
	// History says that DescribeTransactions tells how a transaction has ended.
	History bool
	// Version is for people.
	Version string

	target ParticipantTarget
	admin  *kadm.Client
	client *kgo.Client
	link   *proxy.Proxy

	mu    sync.Mutex
	rules []*rule
}

// rule is a case's interest in what the coordinator says to a participant.
type rule struct {
	ours            func(id string) bool
	request, answer func(*proxy.Exchange)
	always          bool // also where no id of the case is named
}

func openParticipant(ctx context.Context, t ParticipantTarget) (*Participant, error) {
	p := &Participant{Name: t.Name, target: t}
	var err error
	// Produce up to version 9 names topics, and begins no transaction by itself.
	p.client, err = kgo.NewClient(append(t.Security.opts(), kgo.SeedBrokers(t.Bootstrap), kgo.MaxVersions(kversion.V3_7_0()))...)
	if err != nil {
		return nil, err
	}
	p.admin = kadm.NewClient(p.client)
	if err = p.introduce(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("participant %s at %s: %w", t.Name, t.Bootstrap, err)
	}
	if t.Via != "" {
		p.link, err = proxy.Listen(ctx, t.Via, t.Bootstrap, proxy.Hooks{
			Request: func(x *proxy.Exchange) { p.each(x, func(r *rule) func(*proxy.Exchange) { return r.request }) },
			Answer:  func(x *proxy.Exchange) { p.each(x, func(r *rule) func(*proxy.Exchange) { return r.answer }) },
		})
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *Participant) introduce(ctx context.Context) error {
	meta, err := p.admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	p.ID = meta.Cluster
	c, err := dial(ctx, p.target.Bootstrap, p.target.Security)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "conformance", "1"
	resp, err := c.roundTrip(ctx, req)
	if err != nil {
		return err
	}
	api := resp.(*kmsg.ApiVersionsResponse)
	if err = kerr.ErrorForCode(api.ErrorCode); err != nil {
		return err
	}
	level := int16(0)
	for _, f := range api.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	p.EndTxn = 4
	if level >= 2 {
		p.EndTxn = 5
	}
	p.Version = fmt.Sprintf("%s, transaction.version %d", kversion.FromApiVersionsResponse(api).VersionGuess(), level)
	return nil
}

func (p *Participant) close() {
	if p.link != nil {
		p.link.Close()
	}
	p.client.Close()
}

func (p *Participant) each(x *proxy.Exchange, of func(*rule) func(*proxy.Exchange)) {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, r := range rules {
		if f := of(r); f != nil && (r.always || x.Names(r.ours)) {
			f(x)
		}
	}
}

// Ask sends one request to the cluster's node for a key: the transaction
// coordinator of id, or the leader of the only partition of topic.
func (p *Participant) Ask(r *Run, node string, req kmsg.Request) (kmsg.Response, error) {
	return r.ask(p.Name, node, "", p.target.Security, req)
}

// coordinator is the address of the cluster's transaction coordinator of an id.
func (p *Participant) coordinator(r *Run, id string) string {
	var addr string
	r.Until("FindCoordinator at "+p.Name, func() (bool, string) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKeys = 4, 1, []string{id}
		resp, err := req.RequestWith(r.ctx, p.client)
		if err != nil {
			return false, err.Error()
		}
		c := resp.Coordinators[0]
		addr = fmt.Sprintf("%s:%d", c.Host, c.Port)
		return c.ErrorCode == 0, codeName(c.ErrorCode)
	})
	return addr
}

// Topic creates a topic of this case with one partition on the participants.
func (r *Run) Topic(ps ...*Participant) string {
	r.mu.Lock()
	r.count++
	name := fmt.Sprintf("%stopic-%d", r.name, r.count)
	r.mu.Unlock()
	for _, p := range ps {
		r.Until("creating a topic at "+p.Name, func() (bool, string) {
			_, err := p.admin.CreateTopic(r.ctx, 1, 1, nil, name)
			if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
				return true, ""
			}
			return false, err.Error()
		})
		r.later(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), 5*time.Second)
			defer cancel()
			_, _ = p.admin.DeleteTopics(ctx, name)
		})
	}
	return name
}

// Sees fails unless a read_committed reader of the topic finds exactly these
// values, in this order, once nothing is open there.
func (r *Run) Sees(p *Participant, topic string, want ...string) {
	reader := p.target.Security.reader(p.target.Bootstrap)
	defer reader.Close()
	records, err := reader.Topic(r.ctx, topic)
	r.Must(err, "reading at "+p.Name)
	var got []string
	for _, rec := range records {
		got = append(got, rec.Value)
	}
	r.Check(slices.Equal(got, want), "a read_committed reader sees %v at %s, want %v", got, p.Name, want)
}

// Held reports whether an open transaction holds readers of the topic back.
func (r *Run) Held(p *Participant, topic string) bool {
	reader := p.target.Security.reader(p.target.Bootstrap)
	defer reader.Close()
	got, err := reader.Partition(r.ctx, topic, 0, 0)
	r.Must(err, "reading at "+p.Name)
	return got.Open()
}

// State is what the participant says of the id's transaction.
func (r *Run) State(p *Participant, id string) kmsg.DescribeTransactionsResponseTransactionState {
	addr := p.coordinator(r, id)
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := p.Ask(r, addr, req)
	r.Must(err, "DescribeTransactions at "+p.Name)
	return resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
}
