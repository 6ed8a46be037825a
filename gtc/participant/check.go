package participant

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// The two settings of a broker that allow transactions without timeout, and the
// value of the second that does.
const (
	twoPhaseCommitEnable = "transaction.two.phase.commit.enable"
	maxTimeoutMillis     = "transaction.max.timeout.ms"
)

// Check asks every cluster, all at once, whether it can take part in global
// transactions of the id: reachable, of the cluster id, opted in, and willing to
// let the coordinator end transactions of the id. Results are in order.
func (c *Clusters) Check(ctx context.Context, id string, clusterIDs []string) []gtc.CheckResult {
	results := make([]gtc.CheckResult, len(clusterIDs))
	inParallel(len(clusterIDs), func(i int) {
		results[i] = c.check(ctx, id, clusterIDs[i])
		results[i].ClusterID = clusterIDs[i]
	})
	return results
}

func (c *Clusters) check(ctx context.Context, id, clusterID string) gtc.CheckResult {
	cl, err := c.lookup(ctx, clusterID)
	if err != nil {
		return failedCheck(err)
	}
	r, err := cl.check(ctx, id)
	if err != nil {
		// Once more: a connection may have been closed while it was idle,
		// or the transaction coordinator may have moved.
		r, err = cl.check(ctx, id)
	}
	if err != nil {
		r = failedCheck(fmt.Errorf("cluster %q: %w", cl.cfg.Alias, err))
	}
	return r
}

func failedCheck(err error) gtc.CheckResult {
	r := gtc.CheckResult{Code: gtc.CheckUnavailable, Detail: err.Error()}
	var unknown *errUnknownCluster
	var other *errOtherCluster
	switch {
	case errors.As(err, &unknown):
		r.Code = gtc.CheckUnknownCluster
	case errors.As(err, &other):
		r.Code = gtc.CheckClusterIDMismatch
	}
	return r
}

// check looks at one cluster. The error says that it could not be asked.
func (c *cluster) check(ctx context.Context, id string) (gtc.CheckResult, error) {
	s, err := c.session(ctx)
	if err != nil {
		return gtc.CheckResult{}, err
	}
	node, err := s.coordinator(ctx, id)
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return c.unauthorized(id, err), nil
	}
	if err == nil {
		_, err = s.verify(ctx, node)
	}
	if err != nil {
		s.moved(id)
		return gtc.CheckResult{}, err
	}
	r, err := s.optedIn(ctx, node)
	if err != nil || r.Code != gtc.CheckOK {
		return r, err
	}
	code, err := s.probe(ctx, node, id)
	switch {
	case err != nil:
		s.moved(id)
		return gtc.CheckResult{}, err
	case errors.Is(code, kerr.TransactionalIDAuthorizationFailed), errors.Is(code, kerr.ClusterAuthorizationFailed):
		return c.unauthorized(id, code), nil
	case errors.Is(code, kerr.InvalidProducerIDMapping), errors.Is(code, kerr.ConcurrentTransactions):
		return r, nil // let in, and refused for what the probe is
	default:
		s.moved(id)
		return gtc.CheckResult{}, fmt.Errorf("asking whether it may end transactions of %s: %w", plain.Quote(id), code)
	}
}

func (c *cluster) unauthorized(id string, err error) gtc.CheckResult {
	return gtc.CheckResult{
		Code: gtc.CheckUnauthorized,
		Detail: fmt.Sprintf("cluster %q: %v: grant the coordinator's principal WRITE on transactional id %s",
			c.cfg.Alias, err, plain.Quote(id)),
	}
}

// probe asks to abort a transaction that cannot be: producer id -1 belongs to
// nobody. Kafka checks WRITE on the transactional id first, then finds no such
// id, or another producer id, and answers INVALID_PRODUCER_ID_MAPPING without
// changing anything (TransactionCoordinator.endTransaction; the one way past
// that check is a previous producer id equal to the asked one with epoch 32766,
// and a new id's previous producer id is -1, so the epoch must not be 32766).
func (s *session) probe(ctx context.Context, node int32, id string) (code, err error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = id
	req.ProducerID, req.ProducerEpoch = -1, 0
	resp, err := ask[*kmsg.EndTxnResponse](ctx, s, node, pin(req, verdict.EndTxnKeeps))
	if err != nil {
		return nil, err
	}
	if resp.ErrorCode == 0 {
		return nil, errors.New("the cluster accepted the end of a transaction that cannot exist; it is not safe as a participant")
	}
	return kerr.ErrorForCode(resp.ErrorCode), nil
}

// optedIn reads the broker's settings. A cluster that does not let us read them
// may still have opted in; then the vote, which looks at the timeout of the
// transaction itself, is what protects.
func (s *session) optedIn(ctx context.Context, node int32) (gtc.CheckResult, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType = kmsg.ConfigResourceTypeBroker
	res.ResourceName = strconv.Itoa(int(node))
	res.ConfigNames = []string{twoPhaseCommitEnable, maxTimeoutMillis}
	req.Resources = append(req.Resources, res)
	resp, err := ask[*kmsg.DescribeConfigsResponse](ctx, s, node, req)
	if err != nil {
		return gtc.CheckResult{}, err
	}
	if len(resp.Resources) != 1 {
		return gtc.CheckResult{}, fmt.Errorf("broker %d leaves its settings out of the answer", node)
	}
	got := resp.Resources[0]
	alias := s.c.cfg.Alias
	switch err := kerr.ErrorForCode(got.ErrorCode); {
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return gtc.CheckResult{Detail: fmt.Sprintf("cluster %q: not permitted to read the broker's settings (DESCRIBE_CONFIGS on the cluster), so it is not known whether it allows transactions without timeout", alias)}, nil
	case err != nil:
		return gtc.CheckResult{}, fmt.Errorf("broker %d, DescribeConfigs: %w", node, err)
	}
	settings := make(map[string]string, 2)
	for _, c := range got.Configs {
		if c.Value != nil {
			settings[c.Name] = *c.Value
		}
	}
	if settings[twoPhaseCommitEnable] == "true" || settings[maxTimeoutMillis] == strconv.Itoa(verdict.Unlimited) {
		return gtc.CheckResult{}, nil
	}
	if len(settings) == 0 {
		return gtc.CheckResult{Detail: fmt.Sprintf("cluster %q: the broker has neither %s nor %s, so it is not known whether it allows transactions without timeout", alias, twoPhaseCommitEnable, maxTimeoutMillis)}, nil
	}
	return gtc.CheckResult{
		Code: gtc.CheckNotOptedIn,
		Detail: fmt.Sprintf("cluster %q does not allow transactions without timeout: set %s=%d (it is %q) or %s=true (it is %q) on its brokers",
			alias, maxTimeoutMillis, verdict.Unlimited, settings[maxTimeoutMillis], twoPhaseCommitEnable, settings[twoPhaseCommitEnable]),
	}, nil
}
