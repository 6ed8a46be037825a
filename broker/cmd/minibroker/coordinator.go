package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/participant"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/topiclog"
)

// openLogTimeout bounds the first look at the topic of the log.
const openLogTimeout = time.Minute

// startCoordinator starts the role gtc: its log (on the embedded broker, or on
// the home cluster, whose partitions it shares with other nodes), its
// participants and the service over them. It returns the way to stop it.
func startCoordinator(ctx context.Context, opts broker.Options, f flags) (_ broker.Coordinator, stop func() error, err error) {
	cfg, clock := opts.Config, service.SystemClock()
	var parts closers
	defer func() {
		if err != nil {
			err = errors.Join(err, parts.close())
		}
	}()
	fault, err := faults(f)
	if err != nil {
		return nil, nil, err
	}
	log, err := openLog(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	parts.add(func() error { log.Close(); return nil })
	own, err := ownCluster(ctx, opts, &parts)
	if err != nil {
		return nil, nil, err
	}
	participants, err := openParticipants(cfg, clock, opts.Log, own...)
	if err != nil {
		return nil, nil, err
	}
	parts.add(func() error { participants.Close(); return nil })
	o := service.Options{
		Authorizer: authorizer(opts),
		Log:        log, Participants: participants, Config: coreConfig(cfg, participants), Clock: clock, Logger: opts.Log,
		NodeID: opts.Node.ID, Host: opts.Node.Host, Port: opts.Node.Port, Reachable: reachable(participants),
		ScanInterval: cfg.GlobalTransactions.ScanInterval, Fault: fault,
		Retention: func(ctx context.Context, clusterID string) (service.Retention, error) {
			r, failed := participants.Retention(ctx, clusterID)
			return service.Retention(r), failed
		},
	}
	group, err := newGroup(opts)
	if err != nil {
		return nil, nil, err
	}
	if group != nil {
		o.Membership = group
	}
	s, err := service.New(o)
	if err != nil {
		return nil, nil, err
	}
	parts.add(func() error { return drained(ctx, s.Close) })
	if cfg.Metrics != nil {
		closeMetrics, metricsErr := serveMetrics(ctx, *cfg.Metrics, s.Metrics(), opts.Log)
		if metricsErr != nil {
			return nil, nil, metricsErr
		}
		parts.add(closeMetrics)
	}
	if group == nil {
		s.OwnAll()
		return s, parts.close, nil
	}
	if err = group.Join(s); err != nil {
		return nil, nil, err
	}
	parts.add(func() error {
		// Nothing is lost: its session ends by itself.
		if leaveErr := drained(ctx, group.Close); leaveErr != nil {
			opts.Log.Warn().Err(leaveErr).Msg("stopping without having left the group")
		}
		return nil
	})
	return member{s, group}, parts.close, nil
}

// drained gives a part that ends the time to do so, also when ctx has ended.
func drained(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	return end(ctx)
}

func coreConfig(cfg *config.Config, participants *participant.Clusters) gtc.Config {
	g, c := cfg.GlobalTransactions, gtc.DefaultConfig()
	c.MaxTimeoutMillis = int32(g.MaxTimeout.Milliseconds())
	c.Clusters = len(participants.Clusters())
	c.MaxParticipants, c.MaxIDs = int(g.MaxParticipants), int(g.MaxIDsPerPartition)
	c.ExpirationMillis = g.TransactionalIDExpiration.Milliseconds()
	c.RetryBackoffMaxMillis = g.RetryBackoffMax.Milliseconds()
	c.ScanIntervalMillis = g.ScanInterval.Milliseconds()
	c.VoteTimeoutMillis = g.ParticipantRequestTimeout.Milliseconds()
	return c
}

// openLog opens __global_transaction_state where the configuration puts it. On
// the embedded broker there is one replica, made durable by fsync.
func openLog(ctx context.Context, opts broker.Options) (*topiclog.Log, error) {
	cfg, g := opts.Config, opts.Config.GlobalTransactions
	o := topiclog.Options{
		Partitions: g.LogPartitions, ReplicationFactor: g.LogReplicationFactor, MinInsyncReplicas: int(g.LogMinISR),
		Create: true, NodeID: opts.Node.ID, Host: opts.Node.Host, Logger: opts.Log, Clock: wallClock{},
	}
	switch {
	case cfg.Home != nil:
		home, err := clientOpts(*cfg.Home)
		if err != nil {
			return nil, err
		}
		o.ClientOpts = home
	case opts.Embedded != nil:
		o.Private = true // the front refuses clients' records for it
		o.ClientOpts = []kgo.Opt{kgo.SeedBrokers(opts.Node.Addr()), kgo.Dialer(opts.Embedded.Dial)}
	}
	ctx, cancel := context.WithTimeout(ctx, openLogTimeout)
	defer cancel()
	return topiclog.Open(ctx, o)
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func openParticipants(cfg *config.Config, clock service.Clock, log zerolog.Logger, own ...participant.Config) (*participant.Clusters, error) {
	o := participant.Options{Clock: clock.Now, Logger: log, Clusters: own}
	for _, c := range cfg.Clusters {
		kopts, err := clientOpts(c)
		if err != nil {
			return nil, err
		}
		o.Clusters = append(o.Clusters, participant.Config{
			Alias: c.Alias, ExpectedClusterID: c.ClusterID, ClientOpts: kopts,
			RequestTimeout: cfg.GlobalTransactions.ParticipantRequestTimeout,
		})
	}
	return participant.New(o)
}

// ownCluster makes the embedded cluster a participant, unless the configuration
// names it already. Its client goes through a front of its own, which shows
// what every other client is shown, and no coordinator.
func ownCluster(ctx context.Context, opts broker.Options, parts *closers) ([]participant.Config, error) {
	if opts.Embedded == nil {
		return nil, nil
	}
	addr := opts.Node.Addr()
	for _, c := range opts.Config.Clusters {
		if c.ClusterID == opts.Embedded.ClusterID() || slices.Contains(c.BootstrapServers, addr) {
			return nil, nil
		}
	}
	opts.Coordinator = nil
	front, err := broker.NewFront(ctx, opts)
	if err != nil {
		return nil, err
	}
	parts.add(func() error { return shutdown(front, opts.Log) })
	return []participant.Config{{
		Alias: "this cluster", ExpectedClusterID: opts.Embedded.ClusterID(),
		ClientOpts:     []kgo.Opt{kgo.SeedBrokers(addr), kgo.Dialer(front.Dial)},
		RequestTimeout: opts.Config.GlobalTransactions.ParticipantRequestTimeout,
	}}, nil
}

// clientOpts are the way into a cluster.
func clientOpts(c config.Cluster) ([]kgo.Opt, error) {
	access, err := c.Security.Open()
	return append(access.ClientOpts(), kgo.SeedBrokers(c.BootstrapServers...)), err
}
