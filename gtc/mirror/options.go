package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Options configure a Mirror.
type Options struct {
	// Instance is the stable name of this process among those that share the
	// work of the same flows. Two processes with one name fence each other.
	Instance string

	// Coordinator are addresses of any nodes of the coordinator.
	// CoordinatorOpts are for the connections to them.
	Coordinator     []string
	CoordinatorOpts []kgo.Opt

	// Clusters by alias. Every cluster that a flow names is needed.
	Clusters map[string]Cluster

	// Policy names the topics, in all flows alike.
	Policy Policy

	// Flows are what to mirror from where to where.
	Flows []Flow

	// ProgressInterval is how often lag and rate are logged; 0: never.
	ProgressInterval time.Duration

	Clock  Clock
	Logger zerolog.Logger
	// Registerer takes the metrics; nil: none are offered.
	Registerer prometheus.Registerer
}

// Clock is the time, which tests may hold still.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

// Cluster is the way to one cluster.
type Cluster struct {
	// ClientOpts are seed brokers and SASL. Dialer opens the connections; nil
	// is a plain net.Dialer. For TLS: (&tls.Dialer{Config: c}).DialContext.
	ClientOpts []kgo.Opt
	Dialer     func(ctx context.Context, network, address string) (net.Conn, error)
	// TwoPhaseCommit is how the cluster is told not to end transactions.
	TwoPhaseCommit client.TwoPhaseCommit
}

// opts are the options of a client that takes no part in transactions.
func (c Cluster) opts(more ...kgo.Opt) []kgo.Opt {
	opts := slices.Clone(c.ClientOpts)
	if c.Dialer != nil {
		opts = append(opts, kgo.Dialer(c.Dialer))
	}
	return append(opts, more...)
}

// DataLoss says what a flow does when records of the source are gone before
// they were mirrored. It is reported either way.
type DataLoss int8

const (
	// DataLossStop ends the mirror: a person has to look.
	DataLossStop DataLoss = iota
	// DataLossContinue goes on with the oldest record that is there.
	DataLossContinue
)

// Flow is what is mirrored from one cluster to another. Zero values of numbers
// and times are replaced by the defaults named.
type Flow struct {
	Source, Target string // aliases

	Topics Filter // of topics on the source
	Groups Filter // of consumer groups on the source

	RefreshTopicsInterval time.Duration // default 10 minutes
	SyncTopicConfigs      bool
	// ConfigsExclude are topic settings that are not taken over.
	ConfigsExclude    Patterns
	ReplicationFactor int16 // of created topics; 0: the target's default

	SyncGroupOffsets         bool
	SyncGroupOffsetsInterval time.Duration // default 1 minute

	DataLoss DataLoss

	// A transaction takes at most BatchRecords records (default 10,000) and
	// what one fetch of each broker brings, which BatchBytes bounds (default
	// 50 MiB). One is begun at most every BatchLinger (default 20 ms).
	BatchRecords int
	BatchBytes   int32
	BatchLinger  time.Duration
	// Ring is how many transactional ids the flow rotates through (default 4).
	Ring int
	// TransactionTimeout bounds what a dead instance leaves open (default one
	// minute).
	TransactionTimeout time.Duration
	// MaxRequestSize bounds one record on the target (default 1,000,012 bytes).
	MaxRequestSize int32
	// SessionTimeout is after what silence other instances take the
	// partitions of this one over (default 45 s).
	SessionTimeout time.Duration
}

// Name is the flow's name in logs, metrics and ids: source->target.
func (f Flow) Name() string { return f.Source + "->" + f.Target }

// GroupID is the consumer group on the source whose offsets are the mirror's
// own position. Lag tools show it like any other.
func (f Flow) GroupID() string { return "mirror-" + f.Source + "-" + f.Target }

// transactionalID is the flow's id at the coordinator; a ring has more, with a
// number behind.
func (f Flow) transactionalID(instance string) string { return f.GroupID() + "-" + instance }

const (
	defaultRefresh    = 10 * time.Minute
	defaultGroupSync  = time.Minute
	defaultRecords    = 10_000
	defaultBytes      = 50 << 20
	defaultLinger     = 20 * time.Millisecond
	defaultRing       = 4
	defaultTxnTimeout = time.Minute
	defaultMaxRequest = 1_000_012 // kgo's own, below message.max.bytes
	defaultSession    = 45 * time.Second
)

func orDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (f Flow) withDefaults() Flow {
	orDefault(&f.RefreshTopicsInterval, defaultRefresh)
	orDefault(&f.SyncGroupOffsetsInterval, defaultGroupSync)
	orDefault(&f.BatchRecords, defaultRecords)
	orDefault(&f.BatchBytes, defaultBytes)
	orDefault(&f.BatchLinger, defaultLinger)
	orDefault(&f.Ring, defaultRing)
	orDefault(&f.TransactionTimeout, defaultTxnTimeout)
	orDefault(&f.MaxRequestSize, defaultMaxRequest)
	orDefault(&f.SessionTimeout, defaultSession)
	if f.ReplicationFactor == 0 {
		f.ReplicationFactor = -1
	}
	return f
}

// withDefaults checks o and fills it in.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Instance == "":
		return o, errors.New("mirror: Instance is empty: give the process a stable name")
	case len(o.Coordinator) == 0:
		return o, errors.New("mirror: Coordinator is empty: give the address of a node of the coordinator")
	case len(o.Flows) == 0:
		return o, errors.New("mirror: no flow: enable one, as in A->B.enabled=true")
	case o.Clock == nil:
		return o, errors.New("mirror: Clock is nil")
	case !o.Policy.Identity && o.Policy.Separator == "":
		o.Policy.Separator = "."
	}
	o.Flows = slices.Clone(o.Flows)
	shared := map[string]bool{} // by the identity policy
	for i, f := range o.Flows {
		f = f.withDefaults()
		o.Flows[i] = f
		for _, alias := range []string{f.Source, f.Target} {
			if _, ok := o.Clusters[alias]; !ok {
				return o, fmt.Errorf("mirror: flow %s: no cluster %q in Clusters", f.Name(), alias)
			}
			shared[alias] = true
		}
		if f.BatchBytes < 1<<10 || f.BatchBytes > 1<<29 || f.MaxRequestSize < 1<<10 || f.MaxRequestSize > 1<<29 {
			return o, fmt.Errorf("mirror: flow %s: BatchBytes %d and MaxRequestSize %d must be from %d to %d",
				f.Name(), f.BatchBytes, f.MaxRequestSize, 1<<10, 1<<29)
		}
		if f.Source == f.Target {
			return o, fmt.Errorf("mirror: flow %s: a cluster is not mirrored to itself", f.Name())
		}
		if slices.ContainsFunc(o.Flows[:i], func(g Flow) bool { return g.Name() == f.Name() }) {
			return o, fmt.Errorf("mirror: flow %s is there twice", f.Name())
		}
		if f.SyncGroupOffsets && o.Policy.Identity && len(shared) > 2 {
			// What a third cluster wrote is in both logs at places that
			// nothing relates, so no offset is known to lose nothing.
			return o, fmt.Errorf("mirror: flow %s: with the identity policy group offsets are moved between two clusters only, not %v",
				f.Name(), slices.Sorted(maps.Keys(shared)))
		}
	}
	return o, nil
}
