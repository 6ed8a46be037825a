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
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
)

// Secret is a value that no log, print or error may show.
type Secret string

// String hides the value; use string(s) to have it.
func (s Secret) String() string { return "[hidden]" }

// GoString hides the value from %#v too.
func (s Secret) GoString() string { return s.String() }

// Config is a complete and consistent configuration. Mirror lacks the clock,
// the logger and the registry, which are the command's.
type Config struct {
	Mirror   mirror.Options
	LogLevel string
	Metrics  string // host:port; empty: not offered
}

// Error is one thing that is wrong with the configuration.
type Error struct {
	Source  string // the file, or "--override"
	Line    int    // 0 when the source has no lines
	Key     string // empty when the line could not be read at all
	Problem string // what is wrong and what to do
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Source)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	return b.String() + ": " + e.Problem
}

// Load reads the properties file at path, lays the overrides (key=value) over
// it and checks the whole. The error joins every *Error found.
func Load(path string, overrides []string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	return Parse(path, f, overrides)
}

// Parse is Load from a reader; source names it in errors.
func Parse(source string, r io.Reader, overrides []string) (*Config, error) {
	assigned, errs := parseProperties(source, r)
	fromFlags, flagErrs := parseOverrides(overrides)
	errs = append(errs, flagErrs...)
	s, settleErrs := settle(assigned, fromFlags)
	errs = append(errs, settleErrs...)
	if len(errs) > 0 {
		return nil, join(errs)
	}
	b := builder{source: source, settings: s}
	c := b.build()
	if len(b.errs) > 0 {
		return nil, join(b.errs)
	}
	return c, nil
}

func join(errs []*Error) error {
	joined := make([]error, len(errs))
	for i, e := range errs {
		joined[i] = e
	}
	return errors.Join(joined...)
}

// builder makes the options out of settings whose values are each good alone.
type builder struct {
	source   string
	settings settings
	errs     []*Error
}

func (b *builder) build() *Config {
	aliases := list(b.value("clusters"))
	if len(aliases) < 2 {
		b.refuse("clusters", "name two clusters or more")
	}
	for i, alias := range aliases {
		switch {
		case !aliasPattern.MatchString(alias), alias+"." == string(Coordinator):
			b.refuse("clusters", "%q is not an alias; write letters, digits, - and _ (no dots: they separate the parts of a key), and not gtc, which is the coordinator", alias)
		case slices.Contains(aliases[:i], alias):
			b.refuse("clusters", "%q is there twice", alias)
		}
	}
	c := &Config{LogLevel: b.value("log.level"), Metrics: b.value("metrics.listener")}
	if c.Metrics != "" {
		if _, _, err := net.SplitHostPort(c.Metrics); err != nil {
			b.refuse("metrics.listener", "%q is not host:port", c.Metrics)
		}
	}
	c.Mirror = mirror.Options{
		Instance: b.instance(), Policy: b.policy(), Clusters: map[string]mirror.Cluster{},
		ProgressInterval: b.seconds("", "progress.interval.seconds"),
	}
	gtc := b.access(string(Coordinator))
	c.Mirror.Coordinator, c.Mirror.CoordinatorOpts = gtc.servers, gtc.options()
	for _, alias := range aliases {
		for _, other := range aliases {
			if f, ok := b.flow(alias, other); ok {
				c.Mirror.Flows = append(c.Mirror.Flows, f)
			}
		}
		a := b.access(alias + ".")
		c.Mirror.Clusters[alias] = mirror.Cluster{ClientOpts: a.clientOptions(), Dialer: a.dialer(), TwoPhaseCommit: b.twoPhaseCommit(alias)}
	}
	if len(c.Mirror.Flows) == 0 {
		b.refuse("clusters", "no flow is enabled: write <source>-><target>.enabled=true")
	}
	return c
}

func (b *builder) instance() string {
	if name := b.value("instance.id"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		b.refuse("instance.id", "is missing, and the host has no name: %v", err)
	}
	return name
}

func (b *builder) policy() mirror.Policy {
	return mirror.Policy{
		Identity:  strings.Contains(strings.ToLower(b.value("replication.policy.class")), "identity"),
		Separator: b.value("replication.policy.separator"),
	}
}

func (b *builder) twoPhaseCommit(alias string) client.TwoPhaseCommit {
	switch b.value(alias + ".transaction.two.phase.commit.enable") {
	case "true":
		return client.TwoPhaseCommitOn
	case "false":
		return client.TwoPhaseCommitOff
	}
	return client.TwoPhaseCommitAuto
}

func (b *builder) flow(source, target string) (mirror.Flow, bool) {
	of := source + "->" + target + "."
	if source == target || b.flowValue(of, "enabled") != "true" {
		return mirror.Flow{}, false
	}
	f := mirror.Flow{
		Source: source, Target: target,
		Topics:                   mirror.Filter{Include: b.patterns(of, "topics"), Exclude: b.patterns(of, "topics.exclude")},
		Groups:                   mirror.Filter{Include: b.patterns(of, "groups"), Exclude: b.patterns(of, "groups.exclude")},
		RefreshTopicsInterval:    b.seconds(of, "refresh.topics.interval.seconds"),
		SyncTopicConfigs:         b.flowValue(of, "sync.topic.configs.enabled") == "true",
		ConfigsExclude:           b.patterns(of, "config.properties.exclude"),
		ReplicationFactor:        int16(b.number(of, "replication.factor")),
		SyncGroupOffsets:         b.flowValue(of, "sync.group.offsets.enabled") == "true",
		SyncGroupOffsetsInterval: b.seconds(of, "sync.group.offsets.interval.seconds"),
		BatchRecords:             int(b.number(of, "batch.max.records")),
		BatchBytes:               int32(b.number(of, "batch.max.bytes")),
		BatchLinger:              b.millis(of, "batch.linger.ms"),
		Ring:                     int(b.number(of, "transactional.id.ring")),
		TransactionTimeout:       b.millis(of, "global.transaction.timeout.ms"),
		MaxRequestSize:           int32(b.number(of, "producer.max.request.size")),
		SessionTimeout:           b.millis(of, "consumer.session.timeout.ms"),
	}
	if b.flowValue(of, "data.loss.policy") == "continue" {
		f.DataLoss = mirror.DataLossContinue
	}
	return f, true
}

func (b *builder) patterns(of, name string) mirror.Patterns {
	p, err := mirror.CompilePatterns(list(b.flowValue(of, name))...)
	if err != nil {
		b.refuse(b.set(of, name), "%v", err)
	}
	return p
}

// refuse notes a problem of a key at the place where it was set, if it was.
func (b *builder) refuse(name, format string, args ...any) {
	a, set := b.settings[name]
	if !set {
		a = assignment{key: name, source: b.source}
	}
	b.errs = append(b.errs, a.errorf(format, args...))
}

// set is the name under which a flow's key was set: the flow's own, or that for
// all flows.
func (b *builder) set(of, name string) string {
	if _, ok := b.settings[of+name]; ok {
		return of + name
	}
	return name
}

func (b *builder) flowValue(of, name string) string { return b.value(b.set(of, name)) }

func (b *builder) value(name string) string {
	if a, set := b.settings[name]; set {
		return a.value
	}
	k, _ := lookup(split(name))
	return k.Default
}

// number reads a value that settle has already found to be one in range.
func (b *builder) number(of, name string) int64 {
	n, err := strconv.ParseInt(b.flowValue(of, name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("config: the default of %s is not a number", name))
	}
	return n
}

func (b *builder) seconds(of, name string) time.Duration {
	return time.Duration(b.number(of, name)) * time.Second
}

func (b *builder) millis(of, name string) time.Duration {
	return time.Duration(b.number(of, name)) * time.Millisecond
}
