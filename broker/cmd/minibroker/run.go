package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// drainTimeout is how long, at the end, answers that are owed may take.
const drainTimeout = 10 * time.Second

// run is the life of a node: it puts the parts together, serves until ctx
// ends, and takes them apart in the opposite order.
func run(ctx context.Context, cfg *config.Config, f flags, log zerolog.Logger) (err error) {
	var parts closers
	defer func() { err = errors.Join(err, parts.close()) }()

	if cfg.LogDir != "" && cfg.Roles.Broker {
		release, lockErr := broker.LockDir(cfg.LogDir)
		if lockErr != nil {
			return lockErr
		}
		parts.add(release)
	}
	doors, node, err := listenAll(ctx, cfg)
	parts.add(func() error { return closeAll(doors) })
	if err != nil {
		return err
	}

	failed := make(chan error, 1)
	opts := broker.Options{Config: cfg, Node: node, Now: time.Now, Log: log, Fatal: func(err error) {
		select {
		case failed <- err:
		default: // the first is told
		}
	}}
	if cfg.Roles.Broker {
		if err = openEmbedded(ctx, &opts, &parts); err != nil {
			return err
		}
	}
	if err = accessControl(ctx, &opts, &parts); err != nil {
		return err
	}
	if cfg.Roles.GTC {
		coordinator, stop, startErr := startCoordinator(ctx, opts, f)
		if startErr != nil {
			return startErr
		}
		parts.add(stop)
		opts.Coordinator = coordinator
	}
	front, err := broker.NewFront(ctx, opts)
	if err != nil {
		return err
	}
	parts.add(func() error { return shutdown(front, log) })

	served := make(chan error, len(doors))
	for _, d := range doors {
		go func() { served <- front.ServeListener(d.Listener, d.as) }()
	}
	if err := ready(opts, doors, f.readyFile); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		log.Info().Msg("stopping")
		return nil
	case err := <-served:
		return fmt.Errorf("the listener ended: %w", err)
	case err := <-failed:
		return fmt.Errorf("the data directory cannot be written: %w", err)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// shutdown lets the front finish; answers that take too long are no failure of
// the node.
func shutdown(front *broker.Front, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := front.Shutdown(ctx); err != nil {
		log.Warn().Err(err).Msg("stopping with answers owed")
	}
	return nil
}

// openEmbedded starts the broker role on its data directory, mended first.
func openEmbedded(ctx context.Context, opts *broker.Options, parts *closers) error {
	var journal *durable.Journal
	var repaired durable.Report
	prepare := func(dir string) (err error) {
		if repaired, err = durable.Repair(dir, time.Now(), opts.Log); err != nil {
			return err
		}
		if journal, err = durable.OpenJournal(dir, time.Now); err == nil {
			parts.add(journal.Close)
		}
		return err
	}
	embedded, err := broker.OpenEmbedded(opts.Config, opts.Node, prepare, opts.Log)
	if err != nil {
		return err
	}
	parts.add(func() error { embedded.Close(); return nil })
	embedded.TakeOffline(repaired.Offline)
	opts.Embedded = embedded
	if journal != nil {
		opts.Journal = journal
	}
	return embedded.AddScramUsers(ctx, opts.Config.ScramUsers)
}

// ready tells people and scripts that clients are served.
func ready(opts broker.Options, doors []door, readyFile string) error {
	cfg := opts.Config
	for _, d := range doors[1:] {
		opts.Log.Info().Stringer("address", d.Addr()).Str("advertised", d.as.Advertised.Addr()).Str("listener", d.name).Msg("listening too")
	}
	event := opts.Log.Info().Stringer("address", doors[0].Addr()).Str("advertised", opts.Node.Addr()).
		Int32("node_id", opts.Node.ID).Stringer("roles", cfg.Roles)
	if opts.Embedded != nil {
		event = event.Str("cluster_id", opts.Embedded.ClusterID()).Str("data", cfg.LogDir).Bool("fsync", cfg.SyncWrites)
	}
	event.Msg("ready")
	if readyFile == "" {
		return nil
	}
	// Renamed, so that a script never reads half an address.
	part := readyFile + ".new"
	err := os.WriteFile(part, []byte(opts.Node.Addr()+"\n"), 0o600)
	if err == nil {
		err = os.Rename(part, readyFile)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// closers end what was started, last first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	return errors.Join(errs...)
}
