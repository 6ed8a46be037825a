// Package participant is the coordinator's side of the conversation with
// unmodified Kafka clusters: everything that it asks of, or tells, a cluster
// that takes part in global transactions.
//
//	Check  can this cluster take part?            (InitGlobalTxn)
//	Vote   is the transaction prepared?           (before the decision)
//	End    end it as decided, and what came of it (after the decision)
//	Scan   which transactions are open?           (recovery)
//
// The package asks and sends; what the answers prove is decided in gtc/verdict.
//
// Every call has its own deadline, and clusters share nothing, so a cluster
// that accepts connections and never answers delays nobody else.
package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// DefaultRequestTimeout bounds one request to one broker, connecting included,
// when Config does not say otherwise.
const DefaultRequestTimeout = 5 * time.Second

// Config names one cluster.
type Config struct {
	// Alias is the operator's name for the cluster (gtc.cluster.ALIAS.…).
	Alias string
	// ExpectedClusterID, when set, is the only cluster id that the address
	// may answer with. When empty the id is learned from the cluster.
	ExpectedClusterID string
	// ClientOpts are seed brokers and security: kgo.SeedBrokers, kgo.Dialer,
	// kgo.SASL and so on. Options that retry, time out or limit versions
	// are set by this package.
	ClientOpts []kgo.Opt
	// RequestTimeout bounds one request to one broker;
	// DefaultRequestTimeout when 0.
	RequestTimeout time.Duration
}

// clientOpts are the options of every client of the cluster. A broker that
// accepts and never answers is given up after the request's own timeout, or it
// would hold up what is queued behind it on the connection; reads that any
// broker can answer get the time for a second one.
func (c Config) clientOpts() []kgo.Opt {
	opts := slices.Clone(c.ClientOpts)
	return append(opts, kgo.RequestTimeoutOverhead(c.RequestTimeout), kgo.RetryTimeout(2*c.RequestTimeout))
}

// Options are the arguments of New.
type Options struct {
	Clusters []Config
	// Clock is read for the age of what was learned about a broker.
	Clock  func() gtc.Time
	Logger zerolog.Logger
}

// Clusters drives all configured clusters. It is safe for concurrent use.
type Clusters struct {
	all []*cluster // in order of configuration, never changed
}

// New checks the configuration. It contacts nobody: clusters are contacted when
// first needed, so that one that is away does not delay the start.
func New(opts Options) (*Clusters, error) {
	if opts.Clock == nil {
		return nil, errors.New("participant: Options.Clock is not set")
	}
	c := &Clusters{}
	for _, cfg := range opts.Clusters {
		if cfg.Alias == "" {
			return nil, errors.New("participant: a cluster has no alias")
		}
		if cfg.RequestTimeout == 0 {
			cfg.RequestTimeout = DefaultRequestTimeout
		}
		if cfg.RequestTimeout < 0 {
			return nil, fmt.Errorf("participant: cluster %q: request timeout %v is negative", cfg.Alias, cfg.RequestTimeout)
		}
		for _, other := range c.all {
			if other.cfg.Alias == cfg.Alias {
				return nil, fmt.Errorf("participant: cluster %q is configured twice", cfg.Alias)
			}
			if id := cfg.ExpectedClusterID; id != "" && other.cfg.ExpectedClusterID == id {
				return nil, fmt.Errorf("participant: clusters %q and %q expect the same cluster id %q", other.cfg.Alias, cfg.Alias, id)
			}
		}
		if err := kgo.ValidateOpts(cfg.clientOpts()...); err != nil {
			return nil, fmt.Errorf("participant: cluster %q: %w", cfg.Alias, err)
		}
		c.all = append(c.all, newCluster(cfg, opts.Clock, opts.Logger.With().Str("cluster", cfg.Alias).Logger()))
	}
	return c, nil
}

// Close ends all connections; calls under way fail. It does not wait for
// clusters.
func (c *Clusters) Close() {
	for _, cl := range c.all {
		cl.close()
	}
}

// Status is what is known of one configured cluster.
type Status struct {
	Alias     string
	ClusterID string // empty when not learned yet
	Reachable bool   // the last contact succeeded
	LastError string // of the last contact that failed; empty when Reachable
}

// Clusters reports on every configured cluster without contacting any.
func (c *Clusters) Clusters() []Status {
	out := make([]Status, 0, len(c.all))
	for _, cl := range c.all {
		out = append(out, cl.status())
	}
	return out
}

// errUnknownCluster: all configured clusters were asked, none has that id.
type errUnknownCluster struct {
	id      string
	aliases []string
}

func (e *errUnknownCluster) Error() string {
	if len(e.aliases) == 0 {
		return fmt.Sprintf("no configured cluster has cluster id %s; no cluster is configured (gtc.clusters)", plain.Quote(e.id))
	}
	return fmt.Sprintf("no configured cluster has cluster id %s; configured are %s; add it to gtc.clusters", plain.Quote(e.id), strings.Join(e.aliases, ", "))
}

// lookup finds the cluster with the id. Clusters whose id is not known yet are
// asked for it, all at once, and the first that fits is taken, so that only an
// id that nobody has is delayed by a cluster that is away.
func (c *Clusters) lookup(ctx context.Context, clusterID string) (*cluster, error) {
	if cl := c.known(clusterID); cl != nil {
		return cl, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		cl  *cluster
		id  string
		err error
	}
	answers := make(chan answer, len(c.all))
	asked := 0
	for _, cl := range c.all {
		if cl.clusterID() != "" {
			continue
		}
		asked++
		go func() {
			s, err := cl.session(ctx)
			if err != nil {
				answers <- answer{cl, "", err}
				return
			}
			answers <- answer{cl, s.clusterID, nil}
		}()
	}
	var away []error
	for range asked {
		a := <-answers
		if a.err != nil {
			away = append(away, fmt.Errorf("cluster %q: %w", a.cl.cfg.Alias, a.err))
		} else if a.id == clusterID {
			return a.cl, nil
		}
	}
	if cl := c.known(clusterID); cl != nil {
		return cl, nil // another call has learned it since the first look
	}
	if len(away) > 0 {
		// It may be one of those: not known is not the same as not there.
		return nil, fmt.Errorf("cluster id %s is not among the clusters reached so far: %w", plain.Quote(clusterID), errors.Join(away...))
	}
	var aliases []string
	for _, s := range c.Clusters() {
		aliases = append(aliases, fmt.Sprintf("%s=%s", s.Alias, s.ClusterID))
	}
	return nil, &errUnknownCluster{clusterID, aliases}
}

func (c *Clusters) known(clusterID string) *cluster {
	i := slices.IndexFunc(c.all, func(cl *cluster) bool { return cl.clusterID() == clusterID && clusterID != "" })
	if i < 0 {
		return nil
	}
	return c.all[i]
}

// inParallel runs f for every index below n at once and waits for all.
func inParallel(n int, f func(i int)) {
	if n == 1 { // most votes on one cluster: no goroutine
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
