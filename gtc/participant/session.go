package participant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	keyEndTxn = 26
	// trustBrokerMillis is how long what a broker said about itself (which
	// cluster, which features) is believed on a connection that stays open.
	// The finalized transaction.version of a running cluster can change.
	trustBrokerMillis = 30_000
	// gatherLimit bounds one gathered request.
	gatherLimit = 1000
	// coordinatorsKept bounds the cache of coordinators; beyond it some are
	// forgotten and looked up again.
	coordinatorsKept = 100_000
)

// A session is one kgo client and what was learned over its connections. All
// requests that matter name their broker and are sent once: kgo's own routing
// would retry them unseen, and we have to know whether a copy may still be on
// its way (gtc.EndAnswer.Uncertain).
type session struct {
	c         *cluster
	cl        *kgo.Client
	clusterID string
	finding   *gatherer[string, coordinatorFound]
	// stale: a broker could not be reached, so it may have another address
	// now, or be gone. kgo asks for addresses again by itself only after
	// minutes.
	stale atomic.Bool

	mu           sync.Mutex
	brokers      map[int32]brokerInfo // verified; forgotten when a connection ends
	coordinators map[nameHash]int32   // by transactional id
	peers        map[int32]*peer
}

// A peer is what is asked of one broker together: one that does not answer
// holds up its own questions only.
type peer struct {
	verifying  *gatherer[struct{}, verified]
	describing *gatherer[string, described]
}

type verified struct {
	info brokerInfo
	err  error
}

// brokerInfo is what one broker said of itself.
type brokerInfo struct {
	atMono     int64
	endTxnMax  int16
	txnVersion int16 // finalized transaction.version, 0 when it has none
	keeps      bool  // it offers InitProducerId version 6 (KIP-939)
}

// endTxnVersion is the version to end a transaction with. The feature decides,
// not ApiVersions: a 4.4.0 cluster at transaction.version=1 advertises EndTxn
// v5 and executes it with the epoch bump, after which its application's own v4
// end is fenced (measured). kgo and the Java client decide the same way.
func (b brokerInfo) endTxnVersion() int16 {
	if b.txnVersion >= 2 {
		return verdict.EndTxnBumps
	}
	return verdict.EndTxnKeeps
}

func newSession(c *cluster) (*session, error) {
	s := &session{
		c:            c,
		brokers:      make(map[int32]brokerInfo),
		coordinators: make(map[nameHash]int32),
		peers:        make(map[int32]*peer),
	}
	s.finding = &gatherer[string, coordinatorFound]{run: s.find, timeout: 2 * c.cfg.RequestTimeout, limit: gatherLimit}
	cl, err := kgo.NewClient(append(c.cfg.clientOpts(), kgo.WithHooks(s))...)
	if err != nil {
		return nil, fmt.Errorf("client options: %w", err)
	}
	s.cl = cl
	return s, nil
}

func (s *session) close() { s.cl.Close() }

// OnBrokerDisconnect is kgo's hook. What answers at the address next may be
// another cluster, so nothing that matters is sent before it has been asked.
func (s *session) OnBrokerDisconnect(meta kgo.BrokerMetadata, _ net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.brokers, meta.NodeID)
}

// refresh asks any broker for the brokers of the cluster and its id.
func (s *session) refresh(ctx context.Context) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return "", fmt.Errorf("asking for the brokers: %w", err)
	}
	if resp.ClusterID == nil || *resp.ClusterID == "" {
		return "", errors.New("the cluster does not tell its cluster id; Apache Kafka 0.10.1 or newer is needed")
	}
	return *resp.ClusterID, nil
}

func (s *session) peer(node int32) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.peers[node]
	if !ok {
		timeout := s.c.cfg.RequestTimeout
		p = &peer{
			verifying: &gatherer[struct{}, verified]{
				run: func(ctx context.Context, _ []struct{}) map[struct{}]verified {
					info, err := s.verifyNow(ctx, node)
					return map[struct{}]verified{{}: {info, err}}
				}, timeout: timeout, limit: 1,
			},
			describing: &gatherer[string, described]{
				run:     func(ctx context.Context, ids []string) map[string]described { return s.describeAt(ctx, node, ids) },
				timeout: timeout, limit: gatherLimit,
			},
		}
		s.peers[node] = p
	}
	return p
}

// verify makes sure, once for each connection, that the broker belongs to the
// cluster of the session, and learns its features.
func (s *session) verify(ctx context.Context, node int32) (brokerInfo, error) {
	if info, ok := s.trusted(node); ok {
		return info, nil
	}
	v, err := s.peer(node).verifying.do(ctx, struct{}{})
	if err != nil {
		return brokerInfo{}, fmt.Errorf("broker %d: %w", node, err)
	}
	return v.info, v.err
}

func (s *session) trusted(node int32) (brokerInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, ok := s.brokers[node]
	return info, ok && s.c.clock().Mono-info.atMono < trustBrokerMillis
}

func (s *session) verifyNow(ctx context.Context, node int32) (brokerInfo, error) {
	if info, ok := s.trusted(node); ok { // while this batch was waiting
		return info, nil
	}
	asked := s.c.clock().Mono // what it says may be older than its answer
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	got, err := ask[*kmsg.MetadataResponse](ctx, s, node, meta)
	if err != nil {
		return brokerInfo{}, err
	}
	id := ""
	if got.ClusterID != nil {
		id = *got.ClusterID
	}
	if id != s.clusterID {
		err = &errOtherCluster{s.c.cfg.Alias, s.clusterID, id}
		s.c.note(err)
		s.c.drop(s)
		return brokerInfo{}, err
	}
	info, err := s.features(ctx, node)
	if err != nil {
		return brokerInfo{}, err
	}
	info.atMono = asked
	s.mu.Lock()
	s.brokers[node] = info
	s.mu.Unlock()
	s.c.note(nil)
	return info, nil
}

func (s *session) features(ctx context.Context, node int32) (brokerInfo, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "1"
	resp, err := ask[*kmsg.ApiVersionsResponse](ctx, s, node, req)
	if err != nil {
		return brokerInfo{}, err
	}
	if err = kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return brokerInfo{}, fmt.Errorf("asking broker %d for its versions: %w", node, err)
	}
	info := brokerInfo{endTxnMax: -1}
	for _, k := range resp.ApiKeys {
		switch k.ApiKey {
		case keyEndTxn:
			info.endTxnMax = k.MaxVersion
		case wire.KeyInitProducerID:
			info.keeps = k.MaxVersion >= wire.InitProducerIDVersion
		}
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			info.txnVersion = f.MaxVersionLevel
		}
	}
	if resp.FinalizedFeaturesEpoch < 0 && info.endTxnMax >= verdict.EndTxnBumps {
		// A broker that has just started does not know the features yet.
		// Taken for "no features" it would be told EndTxn v4.
		return brokerInfo{}, fmt.Errorf("broker %d does not know the finalized features yet", node)
	}
	return info, nil
}

// ask sends one request to one broker, once.
func ask[R kmsg.Response](ctx context.Context, s *session, node int32, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.cfg.RequestTimeout)
	defer cancel()
	var zero R
	resp, err := s.cl.Broker(int(node)).Request(ctx, req)
	if err != nil {
		s.c.note(err)
		s.stale.Store(true)
		return zero, fmt.Errorf("broker %d, %s: %w", node, kmsg.NameForKey(req.Key()), err)
	}
	r, ok := resp.(R)
	if !ok {
		return zero, fmt.Errorf("broker %d, %s: answer of type %T", node, kmsg.NameForKey(req.Key()), resp)
	}
	return r, nil
}

// A pinned request has the version that we choose, not the highest that both
// sides know, and remembers whether it may have left.
type pinned struct {
	kmsg.Request
	max int16
	mu  sync.Mutex
	ser bool
}

func pin(req kmsg.Request, version int16) *pinned { return &pinned{Request: req, max: version} }

// MaxVersion is what kgo asks for when it chooses the version.
func (p *pinned) MaxVersion() int16 { return p.max }

// AppendTo is called by kgo just before it writes, so a request whose AppendTo
// was never called has certainly not left.
func (p *pinned) AppendTo(dst []byte) []byte {
	p.mu.Lock()
	p.ser = true
	p.mu.Unlock()
	return p.Request.AppendTo(dst)
}

func (p *pinned) mayHaveLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ser
}

// coordinatorFound answers one look-up.
type coordinatorFound struct {
	node  int32
	err   error
	found bool // false in the zero value: the answer left the key out
}

// coordinator is the broker that coordinates the transactional id.
func (s *session) coordinator(ctx context.Context, id string) (int32, error) {
	s.mu.Lock()
	node, ok := s.coordinators[hashOf(id)]
	s.mu.Unlock()
	if ok {
		return node, nil
	}
	got, err := s.finding.do(ctx, id)
	switch {
	case err != nil:
		return 0, fmt.Errorf("looking up the transaction coordinator: %w", err)
	case got.err != nil:
		return 0, fmt.Errorf("looking up the transaction coordinator: %w", got.err)
	case !got.found:
		return 0, errors.New("looking up the transaction coordinator: the answer leaves the transactional id out")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.coordinators) >= coordinatorsKept {
		for k := range s.coordinators { // any one
			delete(s.coordinators, k)
			break
		}
	}
	s.coordinators[hashOf(id)] = got.node
	return got.node, nil
}

// moved forgets where the id is coordinated.
func (s *session) moved(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.coordinators, hashOf(id))
}

// coordinatedBy forgets where the id is coordinated unless it is one of nodes.
func (s *session) coordinatedBy(id string, nodes []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node, ok := s.coordinators[hashOf(id)]; ok && !slices.Contains(nodes, node) {
		delete(s.coordinators, hashOf(id))
	}
}

// find is finding's run: one FindCoordinator for many ids. It is a read, so
// kgo may choose the broker and retry.
func (s *session) find(ctx context.Context, ids []string) map[string]coordinatorFound {
	if s.stale.CompareAndSwap(true, false) {
		if _, err := s.refresh(ctx); err != nil {
			s.stale.Store(true)
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 1 // transaction
	req.CoordinatorKeys = ids
	resp, err := req.RequestWith(ctx, s.cl)
	s.c.note(err)
	out := make(map[string]coordinatorFound, len(ids))
	if err != nil {
		for _, id := range ids {
			out[id] = coordinatorFound{err: err, found: true}
		}
		return out
	}
	for _, c := range resp.Coordinators {
		out[c.Key] = coordinatorFound{node: c.NodeID, err: kerr.ErrorForCode(c.ErrorCode), found: true}
	}
	return out
}
