package config

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// Scope says what a key is of, and so what stands before it.
type Scope string

// The scopes.
const (
	// Global keys stand alone.
	Global Scope = ""
	// PerCluster keys stand behind a cluster's alias: us.bootstrap.servers.
	PerCluster Scope = "<cluster>."
	// PerFlow keys stand behind a flow, or alone for all flows:
	// us->eu.topics, topics.
	PerFlow Scope = "<source>-><target>."
	// Coordinator keys are the way to the GTC.
	Coordinator Scope = "gtc."
)

// Key describes one configuration key; its name is without what stands before
// it.
type Key struct {
	properties.Key
	Scope Scope
}

// Keys is every key, in the order of the help.
func Keys() []Key { return slices.Clone(keys) }

const maxInt = 1<<31 - 1

// The classes of MirrorMaker, and short words for them.
var policyClasses = []string{
	"default", "identity",
	"org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
	"DefaultReplicationPolicy", "IdentityReplicationPolicy",
}

var keys = slices.Concat(scoped(Global, globalKeys), scoped(PerFlow, flowKeys), scoped(PerCluster, clusterKeys),
	scoped(PerCluster, properties.ClientKeys()), scoped(Coordinator, properties.ClientKeys()))

func scoped(scope Scope, ks []properties.Key) []Key {
	out := make([]Key, len(ks))
	for i, k := range ks {
		out[i] = Key{k, scope}
	}
	return out
}

var globalKeys = []properties.Key{
	{Name: "clusters", Type: properties.List, Doc: "Aliases of the clusters: us,eu."},
	{Name: "replication.policy.class", Type: properties.String, Default: "default", Values: policyClasses, Doc: "How topics are called on the target: default puts the source's alias before the name, identity keeps the name. MirrorMaker's class names are taken too."},
	{Name: "replication.policy.separator", Type: properties.String, Default: ".", Doc: "Between alias and name with the default policy."},
	{Name: "instance.id", Type: properties.String, Doc: "The stable name of this process among those that share the work. By default the host's name. Two processes with one name fence each other."},
	{Name: "metrics.listener", Type: properties.String, Doc: "host:port for Prometheus, /metrics. Off by default."},
	{Name: "progress.interval.seconds", Type: properties.Int, Default: "10", Min: 0, Max: maxInt, Doc: "How often lag and rate are logged; 0: never."},
	{Name: "log.level", Type: properties.String, Default: "info", Values: []string{"trace", "debug", "info", "warn", "error"}, Doc: "The least level of what is logged, to standard error."},
}

var flowKeys = []properties.Key{
	{Name: "enabled", Type: properties.Boolean, Default: "false", Doc: "Mirror from source to target."},
	{Name: "topics", Type: properties.List, Default: ".*", Doc: "Names and regular expressions (RE2) of the topics to mirror."},
	{Name: "topics.exclude", Type: properties.List, Default: `.*[\-\.]internal,.*\.replica,__.*`, Doc: "Those not to mirror."},
	{Name: "groups", Type: properties.List, Default: ".*", Doc: "Consumer groups whose offsets are moved."},
	{Name: "groups.exclude", Type: properties.List, Default: "console-consumer-.*,connect-.*,__.*", Doc: "Those whose offsets are not."},
	{Name: "refresh.topics.interval.seconds", Type: properties.Int, Default: "600", Min: 1, Max: maxInt, Doc: "How often new topics, partitions and settings are looked for."},
	{Name: "sync.topic.configs.enabled", Type: properties.Boolean, Default: "true", Doc: "Take settings of topics over after creation too. Never where both clusters mirror a topic to one another under one name."},
	{Name: "config.properties.exclude", Type: properties.List, Default: `follower\.replication\.throttled\.replicas,leader\.replication\.throttled\.replicas,message\.timestamp\.difference\.max\.ms,message\.timestamp\.type,unclean\.leader\.election\.enable,min\.insync\.replicas`, Doc: "Settings of topics that are not taken over."},
	{Name: "replication.factor", Type: properties.Int, Default: "-1", Min: -1, Max: 1<<15 - 1, Doc: "Of topics that are created; -1: the target's default."},
	{Name: "sync.group.offsets.enabled", Type: properties.Boolean, Default: "false", Doc: "Move the offsets of groups, in the transactions of the records. Only of groups without members on the target."},
	{Name: "sync.group.offsets.interval.seconds", Type: properties.Int, Default: "60", Min: 1, Max: maxInt, Doc: "How often the offsets of groups are looked at."},
	{Name: "data.loss.policy", Type: properties.String, Default: "stop", Values: []string{"stop", "continue"}, Doc: "When the source no longer holds what was to be mirrored (retention, a topic deleted or created again): stop, or report it and continue with what is there."},
	{Name: "batch.max.records", Type: properties.Int, Default: "10000", Min: 1, Max: 1_000_000, Doc: "The most records of one transaction."},
	{Name: "batch.max.bytes", Type: properties.Int, Default: "52428800", Min: 1 << 10, Max: 1 << 29, Doc: "The most bytes that one fetch of a broker may bring, which bounds memory and transactions."},
	{Name: "batch.linger.ms", Type: properties.Int, Default: "20", Min: 1, Max: 60_000, Doc: "A transaction is begun at most this often."},
	{Name: "transactional.id.ring", Type: properties.Int, Default: "4", Min: 1, Max: 16, Doc: "How many transactional ids a flow takes turns with, so that a transaction does not wait for the markers of the one before."},
	{Name: "global.transaction.timeout.ms", Type: properties.Int, Default: "60000", Min: 100, Max: maxInt, Doc: "After what time the coordinator aborts what a dead instance has left open."},
	{Name: "producer.max.request.size", Type: properties.Int, Default: "1000012", Min: 1 << 10, Max: 1 << 29, Doc: "The largest record on the target."},
	{Name: "consumer.session.timeout.ms", Type: properties.Int, Default: "45000", Min: 1000, Max: maxInt, Doc: "After what silence of an instance the others take its partitions over."},
}

var clusterKeys = []properties.Key{
	{Name: "transaction.two.phase.commit.enable", Type: properties.Boolean, Default: "", Doc: "true: ask for two-phase commit (KIP-939) and nothing else; false: transaction.max.timeout.ms only. Not set: what the cluster offers."},
}

// foreign are keys of MirrorMaker that have no meaning here, and why. Taking
// them in silence would let somebody believe in an effect.
var foreign = map[string]string{
	"emit.checkpoints.":             "offsets are moved in the transactions of the records, without checkpoints: remove it, and set sync.group.offsets.enabled=true to move offsets",
	"emit.heartbeats.":              "there are no heartbeats; lag is a metric: remove it",
	"emit.offset-syncs.":            "there is no topic of offset syncs: remove it",
	"offset-syncs.":                 "there is no topic of offset syncs: remove it",
	"offset.lag.max":                "offsets are translated exactly: remove it",
	"checkpoints.topic.":            "there are no checkpoints: remove it",
	"heartbeats.topic.":             "there are no heartbeats: remove it",
	"tasks.max":                     "start as many processes as you like, each with its own instance.id: remove it",
	"refresh.groups.":               "groups are looked at every sync.group.offsets.interval.seconds: remove it",
	"refresh.topics.enabled":        "topics are always refreshed: remove it",
	"sync.topic.acls.":              "ACLs are not mirrored: remove it",
	"exactly.once.source.support":   "mirroring is always exactly once: remove it",
	"topics.blacklist":              "write topics.exclude",
	"groups.blacklist":              "write groups.exclude",
	"config.properties.blacklist":   "write config.properties.exclude",
	"dedicated.mode.":               "there is no Connect: remove it",
	"config.storage.":               "there is no Connect: remove it",
	"offset.storage.":               "there is no Connect: remove it",
	"status.storage.":               "there is no Connect: remove it",
	"use.incremental.alter.configs": "it is always so: remove it",
}

func foreignReason(name string) string {
	for prefix, reason := range foreign {
		if strings.HasPrefix(split(name).name, prefix) {
			return "MirrorMaker's, and without meaning here: " + reason
		}
	}
	return ""
}

// place is a key as it was written: what it is of, and its name there.
type place struct {
	scope Scope
	of    string // alias, or source->target; empty for all flows
	name  string
}

// split takes apart what is written before a key.
func split(name string) place {
	if i := strings.Index(name, "->"); i >= 0 {
		if dot := strings.IndexByte(name[i:], '.'); dot >= 0 {
			return place{PerFlow, name[:i+dot], name[i+dot+1:]}
		}
	}
	for _, k := range keys {
		if k.Name == name && (k.Scope == Global || k.Scope == PerFlow) {
			return place{k.Scope, "", name}
		}
	}
	if rest, ok := strings.CutPrefix(name, string(Coordinator)); ok {
		return place{Coordinator, "", rest}
	}
	if alias, rest, ok := strings.Cut(name, "."); ok && slices.ContainsFunc(keys, func(k Key) bool { return k.Scope == PerCluster && k.Name == rest }) {
		return place{PerCluster, alias, rest}
	}
	return place{Global, "", name}
}

func lookup(name string) (properties.Key, bool) {
	p := split(name)
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Scope == p.scope && k.Name == p.name })
	if i < 0 {
		return properties.Key{}, false
	}
	return keys[i].Key, true
}

// schema is that of a configuration with these clusters.
func schema(aliases []string) properties.Schema {
	similar := func(name string) (names []string) {
		p := split(name)
		for _, k := range keys {
			switch k.Scope {
			case Global:
				names = append(names, k.Name)
			case PerFlow:
				names = append(names, k.Name)
				if p.scope == PerFlow && p.of != "" {
					names = append(names, p.of+"."+k.Name)
				}
			case PerCluster:
				for _, alias := range aliases {
					names = append(names, alias+"."+k.Name)
				}
			case Coordinator:
				names = append(names, string(Coordinator)+k.Name)
			}
		}
		return names
	}
	return properties.Schema{Lookup: lookup, Similar: similar, Foreign: foreignReason, Listed: "--help-config lists those there are"}
}

var aliasPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check gives what is wrong with what stands before a key.
func (p place) check(aliases []string) string {
	named := []string{p.of}
	switch {
	case p.of == "":
		return ""
	case p.scope == PerFlow:
		source, target, _ := strings.Cut(p.of, "->")
		named = []string{source, target}
		if source == target {
			return "a cluster is not mirrored to itself"
		}
	}
	for _, alias := range named {
		if !slices.Contains(aliases, alias) {
			return fmt.Sprintf("%q is not in clusters=%s", alias, strings.Join(aliases, ","))
		}
	}
	return ""
}

// PrintHelp writes the documentation of every key.
func PrintHelp(w io.Writer) error {
	for _, k := range keys {
		before := string(k.Scope)
		if k.Scope == PerFlow {
			before = "[" + before + "]"
		}
		if err := k.Help(w, before+k.Name); err != nil {
			return err
		}
	}
	return nil
}
