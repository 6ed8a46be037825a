package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

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
// the home cluster), its participants and the service over them. It returns the
// way to stop it.
func startCoordinator(ctx context.Context, opts broker.Options, crashAt string) (broker.Coordinator, func() error, error) {
	cfg, clock := opts.Config, service.SystemClock()
	fault, err := crasher(crashAt)
	if err != nil {
		return nil, nil, err
	}
	log, err := openLog(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	participants, err := openParticipants(cfg, clock, opts.Log)
	if err != nil {
		log.Close()
		return nil, nil, err
	}
	s, err := service.New(service.Options{
		Log: log, Participants: participants, Config: coreConfig(cfg), Clock: clock, Logger: opts.Log,
		NodeID: opts.Node.ID, Host: opts.Node.Host, Port: opts.Node.Port,
		ScanInterval: cfg.GlobalTransactions.ScanInterval, Fault: fault,
	})
	if err != nil {
		participants.Close()
		log.Close()
		return nil, nil, err
	}
	s.OwnAll()
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		err := s.Close(ctx)
		participants.Close()
		log.Close()
		return err
	}
	return s, stop, nil
}

func coreConfig(cfg *config.Config) gtc.Config {
	g, c := cfg.GlobalTransactions, gtc.DefaultConfig()
	c.MaxTimeoutMillis = int32(g.MaxTimeout.Milliseconds())
	c.ExpirationMillis = g.TransactionalIDExpiration.Milliseconds()
	c.RetryBackoffMaxMillis = g.RetryBackoffMax.Milliseconds()
	c.ScanIntervalMillis = g.ScanInterval.Milliseconds()
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
		o.ClientOpts = []kgo.Opt{kgo.SeedBrokers(net.JoinHostPort(opts.Node.Host, strconv.Itoa(int(opts.Node.Port)))), kgo.Dialer(opts.Embedded.Dial)}
	}
	ctx, cancel := context.WithTimeout(ctx, openLogTimeout)
	defer cancel()
	return topiclog.Open(ctx, o)
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func openParticipants(cfg *config.Config, clock service.Clock, log zerolog.Logger) (*participant.Clusters, error) {
	o := participant.Options{Clock: clock.Now, Logger: log}
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

// clientOpts are the way into a cluster.
func clientOpts(c config.Cluster) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(c.BootstrapServers...)}
	s := c.Security
	if s.TLS {
		t, err := tlsConfig(s)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Alias, err)
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	switch s.SASLMechanism {
	case "":
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: s.Username, Pass: string(s.Password)}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: s.Username, Pass: string(s.Password)}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: s.Username, Pass: string(s.Password)}.AsSha512Mechanism()))
	}
	return opts, nil
}

func tlsConfig(s config.Security) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TrustStorePEM != "" {
		pem, err := os.ReadFile(s.TrustStorePEM)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.TrustStoreKeyName, err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s holds no PEM certificate", s.TrustStoreKeyName, s.TrustStorePEM)
		}
	}
	if !s.VerifyHostname {
		// An empty ssl.endpoint.identification.algorithm waives the name,
		// not the chain. crypto/tls has one switch for both, so the chain is
		// verified here.
		t.InsecureSkipVerify = true
		t.VerifyConnection = func(cs tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: t.RootCAs, Intermediates: x509.NewCertPool()}
			for _, c := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		}
	}
	if s.KeyStorePEM != "" {
		cert, err := tls.LoadX509KeyPair(s.KeyStorePEM, s.KeyStorePEM)
		if err != nil {
			return nil, fmt.Errorf("ssl.keystore.location: %w", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

// crasher reads point[:n] and returns a function that ends this process with
// SIGKILL when the point is reached for the n-th time. The crash suite and the
// demo use it; without it a kill would hit the moment between two messages only
// by luck.
func crasher(at string) (func(point string), error) {
	if at == "" {
		return nil, nil //nolint:nilnil // no point, no crash
	}
	point, count, _ := strings.Cut(at, ":")
	n := 1
	if count != "" {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 {
			return nil, fmt.Errorf("--crash-at %s: %q is not a count", at, count)
		}
	}
	points := service.FaultPoints()
	known := false
	for _, p := range points {
		known = known || p == point
	}
	if !known {
		return nil, fmt.Errorf("--crash-at: unknown point %q; there are %s", point, strings.Join(points, ", "))
	}
	var mu sync.Mutex
	return func(p string) {
		if p != point {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if n--; n > 0 {
			return
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(errors.Join(errors.New("--crash-at"), err))
		}
		select {} // nothing more leaves this process
	}, nil
}
