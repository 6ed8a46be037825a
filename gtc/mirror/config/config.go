// Package config reads the mirror's configuration: a properties file with
// MirrorMaker's conventions, and key=value overrides on top of it.
//
//	clusters=us,eu
//	us.bootstrap.servers=us-1:9092
//	eu.bootstrap.servers=eu-1:9092
//	gtc.bootstrap.servers=gtc-1:9092
//	us->eu.enabled=true
//	us->eu.topics=orders.*
//
// What it does not know is refused, with the line and the nearest name; of keys
// of MirrorMaker that mean nothing here it says why.
package config

import (
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
)

// Config is a complete and consistent configuration. Mirror lacks the clock,
// the logger and the registry, which are the command's.
type Config struct {
	Mirror   mirror.Options
	LogLevel string
	Metrics  string // host:port; empty: not offered
}

// Load reads the properties file at path, lays the overrides (key=value) over
// it and checks the whole. The error joins every *properties.Error found.
func Load(path string, overrides []string) (*Config, error) {
	s, err := properties.Load(path, overrides)
	if err != nil {
		return nil, err
	}
	return typed(s)
}

// Parse is Load from a reader; source names it in errors.
func Parse(source string, r io.Reader, overrides []string) (*Config, error) {
	return typed(properties.Parse(source, r, overrides))
}

func typed(s *properties.Settings) (*Config, error) {
	aliases := s.List("clusters")
	s.Check(schema(aliases))
	for _, name := range s.Names() {
		if _, known := lookup(name); !known {
			continue // and refused for that
		}
		if problem := split(name).check(aliases); problem != "" {
			s.Refuse(name, "%s", problem)
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	c := (&builder{s}).build()
	if err := s.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// builder makes the options out of settings whose values are each good alone.
type builder struct{ *properties.Settings }

func (b *builder) build() *Config {
	aliases := b.List("clusters")
	if len(aliases) < 2 {
		b.Refuse("clusters", "name two clusters or more")
	}
	for i, alias := range aliases {
		switch {
		case !aliasPattern.MatchString(alias), alias+"." == string(Coordinator):
			b.Refuse("clusters", "%q is not an alias; write letters, digits, - and _ (no dots: they separate the parts of a key), and not gtc, which is the coordinator", alias)
		case slices.Contains(aliases[:i], alias):
			b.Refuse("clusters", "%q is there twice", alias)
		}
	}
	c := &Config{LogLevel: b.Value("log.level"), Metrics: b.Value("metrics.listener")}
	if c.Metrics != "" {
		if _, _, err := net.SplitHostPort(c.Metrics); err != nil {
			b.Refuse("metrics.listener", "%q is not host:port", c.Metrics)
		}
	}
	c.Mirror = mirror.Options{
		Instance: b.instance(), Policy: b.policy(), Clusters: map[string]mirror.Cluster{},
		ProgressInterval: b.Seconds("progress.interval.seconds"),
		Coordinator:      b.Servers(string(Coordinator) + "bootstrap.servers"),
	}
	c.Mirror.CoordinatorOpts = append(b.Access(string(Coordinator)).ClientOpts(), kgo.SeedBrokers(c.Mirror.Coordinator...))
	for _, alias := range aliases {
		for _, other := range aliases {
			if f, ok := b.flow(alias, other); ok {
				c.Mirror.Flows = append(c.Mirror.Flows, f)
			}
		}
		c.Mirror.Clusters[alias] = b.cluster(alias)
	}
	if len(c.Mirror.Flows) == 0 {
		b.Refuse("clusters", "no flow is enabled: write <source>-><target>.enabled=true")
	}
	return c
}

func (b *builder) instance() string {
	if name := b.Value("instance.id"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		b.Refuse("instance.id", "is missing, and the host has no name: %v", err)
	}
	return name
}

func (b *builder) policy() mirror.Policy {
	return mirror.Policy{
		Identity:  strings.Contains(strings.ToLower(b.Value("replication.policy.class")), "identity"),
		Separator: b.Value("replication.policy.separator"),
	}
}

func (b *builder) cluster(alias string) mirror.Cluster {
	servers, access := b.Servers(alias+".bootstrap.servers"), b.Access(alias+".")
	c := mirror.Cluster{ClientOpts: append(access.LoginOpts(), kgo.SeedBrokers(servers...)), Dialer: access.DialContext}
	switch b.Value(alias + ".transaction.two.phase.commit.enable") {
	case "true":
		c.TwoPhaseCommit = client.TwoPhaseCommitOn
	case "false":
		c.TwoPhaseCommit = client.TwoPhaseCommitOff
	default:
		c.TwoPhaseCommit = client.TwoPhaseCommitAuto
	}
	return c
}

func (b *builder) flow(source, target string) (mirror.Flow, bool) {
	// A key's name here: the flow's own if it was set, or that for all flows.
	of := func(name string) string {
		if own := source + "->" + target + "." + name; b.IsSet(own) {
			return own
		}
		return name
	}
	if source == target || !b.Bool(of("enabled")) {
		return mirror.Flow{}, false
	}
	f := mirror.Flow{
		Source: source, Target: target,
		Topics:                   mirror.Filter{Include: b.patterns(of("topics")), Exclude: b.patterns(of("topics.exclude"))},
		Groups:                   mirror.Filter{Include: b.patterns(of("groups")), Exclude: b.patterns(of("groups.exclude"))},
		RefreshTopicsInterval:    b.Seconds(of("refresh.topics.interval.seconds")),
		SyncTopicConfigs:         b.Bool(of("sync.topic.configs.enabled")),
		ConfigsExclude:           b.patterns(of("config.properties.exclude")),
		ReplicationFactor:        b.Int16(of("replication.factor")),
		SyncGroupOffsets:         b.Bool(of("sync.group.offsets.enabled")),
		SyncGroupOffsetsInterval: b.Seconds(of("sync.group.offsets.interval.seconds")),
		BatchRecords:             int(b.Int64(of("batch.max.records"))),
		BatchBytes:               b.Int32(of("batch.max.bytes")),
		BatchLinger:              b.Millis(of("batch.linger.ms")),
		Ring:                     int(b.Int64(of("transactional.id.ring"))),
		TransactionTimeout:       b.Millis(of("global.transaction.timeout.ms")),
		MaxRequestSize:           b.Int32(of("producer.max.request.size")),
		SessionTimeout:           b.Millis(of("consumer.session.timeout.ms")),
	}
	if b.Value(of("data.loss.policy")) == "continue" {
		f.DataLoss = mirror.DataLossContinue
	}
	return f, true
}

func (b *builder) patterns(name string) mirror.Patterns {
	p, err := mirror.CompilePatterns(b.List(name)...)
	if err != nil {
		b.Refuse(name, "%w", err)
	}
	return p
}
