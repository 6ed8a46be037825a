package config

import (
	"io"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// Role is the part in process.roles that a key belongs to.
type Role string

// The roles; AnyRole marks keys that every node has.
const (
	AnyRole    Role = ""
	BrokerRole Role = "broker"
	GTCRole    Role = "gtc"
	GTCOnly    Role = "gtc without broker"
)

// Alias stands in Key.Name for the alias of a cluster in gtc.clusters.
const Alias = "<alias>"

// Key describes one configuration key.
type Key struct {
	properties.Key
	// EmbeddedDefault replaces Default on a node that has the broker role.
	EmbeddedDefault string
	Role            Role
}

// DefaultFor gives the default on a node of these roles.
func (k Key) DefaultFor(r Roles) string {
	if r.Broker && k.EmbeddedDefault != "" {
		return k.EmbeddedDefault
	}
	return k.Default
}

// ListenerName stands in Key.Name for the name of a listener, in small letters.
const ListenerName = "<listener>"

// Keys is every key that a node understands, in the order of the help.
func Keys() []Key { return slices.Clone(keys) }

const (
	maxInt  = 1<<31 - 1
	maxLong = 1<<63 - 1

	defaultRoles = "broker"
	flushNever   = "9223372036854775807"
)

var keys = slices.Concat(
	prefixed("", AnyRole, nodeKeys), prefixed("", AnyRole, listenerKeys), prefixed(listenerPrefix+ListenerName+".", AnyRole, oneListenersKeys()),
	prefixed("", BrokerRole, brokerKeys), prefixed("", GTCRole, gtcKeys), prefixed("", GTCOnly, gtcOnlyKeys),
	prefixed(clusterPrefix+Alias+".", GTCRole, properties.ClientKeys()), prefixed("gtc.home.", GTCOnly, properties.ClientKeys()))

// prefixed gives keys their role and what stands before them.
func prefixed(prefix string, role Role, ks []properties.Key) []Key {
	out := make([]Key, len(ks))
	for i, k := range ks {
		k.Name = prefix + k.Name
		out[i] = Key{Key: k, EmbeddedDefault: embeddedDefaults[k.Name], Role: role}
	}
	return out
}

// embeddedDefaults are those on a node that has the broker role: the embedded
// broker has one replica.
var embeddedDefaults = map[string]string{
	"global.transaction.state.log.replication.factor": "1",
	"global.transaction.state.log.min.isr":            "1",
}

var nodeKeys = []properties.Key{
	{Name: "process.roles", Type: properties.List, Default: defaultRoles, Values: []string{"broker", "gtc"}, Doc: "What this process is: broker, broker,gtc (the coordinator keeps its log on the embedded broker) or gtc (its log is on the cluster of gtc.home.bootstrap.servers)."},
	{Name: "node.id", Type: properties.Int, Default: "0", Min: 0, Max: maxInt, Doc: "The id of this node. The embedded broker is always node 0; nodes that have the gtc role alone each need their own."},
	{Name: "listeners", Type: properties.List, Default: "PLAINTEXT://localhost:9092", Doc: "The addresses to listen on, as NAME://host:port with commas between; a node that is gtc alone has one. An empty host means all interfaces, port 0 one that the system chooses. The first one is what the other nodes of a group tell clients."},
	{Name: "advertised.listeners", Type: properties.List, Doc: "The address that the clients of each listener are told. By default that of listeners; with all interfaces, the host's name. Port 0 means the port listened on."},
	{Name: "listener.security.protocol.map", Type: properties.List, Doc: "NAME:PROTOCOL for each listener that is not named by its protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."},
	{Name: "authorizer.class.name", Type: properties.String, Values: []string{StandardAuthorizer}, Doc: "Turns access control on: ACLs of the embedded broker, or, on a node that is gtc alone, those of the home cluster. By default everybody may do everything."},
	{Name: "super.users", Type: properties.String, Doc: "Principals that may do everything, with semicolons between: User:admin;User:CN=ops."},
	{Name: "socket.request.max.bytes", Type: properties.Int, Default: "104857600", Min: 1024, Max: maxInt, Doc: "The largest request in bytes; a larger one closes the connection."},
	{Name: "max.connections", Type: properties.Int, Default: "1000", Min: 1, Max: maxInt, Doc: "How many connections are open at most; further ones wait in the listen queue. Kafka's default is 2147483647."},
	{Name: "max.connections.per.ip", Type: properties.Int, Default: "2147483647", Min: 1, Max: maxInt, Doc: "How many connections one address may have open; a further one is closed at once."},
	{Name: "max.in.flight.requests.per.connection", Type: properties.Int, Default: "64", Min: 1, Max: 1000, Doc: "How many answers a connection may have outstanding; further requests are not read until the client has taken some."},
	{Name: "queued.max.request.bytes", Type: properties.Long, Default: "33554432", Min: 1 << 20, Max: maxLong, Doc: "How much memory requests of more than 64 KiB (Produce) or 2 KiB (all others) may take together, from the first byte to the answer; what does not fit waits. A Produce counts twice its bytes; any other 128 times until it is read, because arrays grow, and then what it takes. Kafka's default is none."},
	{Name: "connections.max.idle.ms", Type: properties.Long, Default: "600000", Min: 1000, Max: maxInt, Doc: "A connection on which nothing is asked and nothing is owed for this long is closed."},
	{Name: "log.level", Type: properties.String, Default: "info", Values: []string{"trace", "debug", "info", "warn", "error"}, Doc: "The least level of what is logged, to standard error."},
}

var brokerKeys = []properties.Key{
	{Name: "cluster.id", Type: properties.String, Doc: "The id of the embedded cluster. By default a random one is made at the first start and kept in the data directory."},
	{Name: "log.dirs", Type: properties.String, Default: "/tmp/minibroker-logs", Doc: "The data directory (one), for the user of this process alone (0700, files 0600): what is open to others at the start is closed, or the start refused. Set to nothing (log.dirs=), everything is kept in memory and lost at the end."},
	{Name: "log.flush.interval.messages", Type: properties.Long, Default: "1", Min: 1, Max: maxLong, Values: []string{"1", flushNever}, Doc: "1 forces every batch to the disk before it is acknowledged; 9223372036854775807, Kafka's default, leaves that to the operating system: a power failure then loses acknowledged records."},
	{Name: "log.segment.bytes", Type: properties.Int, Default: "104857600", Min: 14, Max: maxInt, Doc: "How large a segment of a partition grows before the next one is begun. Kafka's default is 1073741824."},
	{Name: "group.max.size", Type: properties.Int, Default: "1000", Min: 1, Max: maxInt, Doc: "How many members a consumer group may have; a further one is told GROUP_MAX_SIZE_REACHED. Kafka's default is 2147483647."},
	{Name: "num.partitions", Type: properties.Int, Default: "1", Min: 1, Max: 10000, Doc: "Partitions of a topic that is created without a number of its own."},
	{Name: "auto.create.topics.enable", Type: properties.Boolean, Default: "true", Doc: "Create a topic when a client asks for it."},
	{Name: "transaction.max.timeout.ms", Type: properties.Int, Default: "900000", Min: 1, Max: maxInt, Doc: "The longest transaction timeout that a client may ask for. 2147483647 lets participants of global transactions opt in with stable API versions."},
	{Name: "transaction.two.phase.commit.enable", Type: properties.Boolean, Default: "false", Doc: "Let producers ask for transactions without timeout (KIP-939)."},
	{Name: listenerPrefix + ListenerName + ".plain.sasl.jaas.config", Type: properties.Password, Doc: "The users of PLAIN at one listener, as in Kafka: org.apache.kafka.common.security.plain.PlainLoginModule required user_<name>=\"<password>\" ...; A node that is gtc alone asks its home cluster instead."},
	{Name: "sasl.scram.credentials", Type: properties.Password, Doc: "Users of SCRAM to begin with, as in kafka-storage's --add-scram and with semicolons between: SCRAM-SHA-256=[name=alice,password=...]. One that is there already keeps its password; later changes go through kafka-configs."},
	{Name: "unstable.api.versions.enable", Type: properties.Boolean, Default: "false", Doc: "Offer InitProducerId v6, which Kafka 4.1 to 4.4 holds to be unstable."},
}

var gtcKeys = []properties.Key{
	{Name: "gtc.clusters", Type: properties.List, Doc: "Aliases of the participating clusters; each has its own gtc.cluster.<alias>.* keys. On a node that is a broker too, the embedded cluster takes part without being named."},
	{Name: "gtc.cluster." + Alias + ".cluster.id", Type: properties.String, Doc: "The cluster id that this cluster must have; by default any."},
	{Name: "metrics.listener", Type: properties.String, Doc: "host:port at which Prometheus finds the coordinator's metrics, under /metrics, without authentication; port 0 means one that the system chooses. By default they are not offered."},
	{Name: "global.transaction.max.timeout.ms", Type: properties.Int, Default: "900000", Min: 1, Max: maxInt, Doc: "The longest timeout of a global transaction that a client may ask for."},
	{Name: "global.transaction.max.participants", Type: properties.Int, Default: "32", Min: 1, Max: 32, Doc: "How many clusters a session may name; more are INVALID_REQUEST."},
	{Name: "global.transactional.ids.max.per.partition", Type: properties.Int, Default: "20000", Min: 1, Max: maxInt, Doc: "How many global transactional ids a partition of the log may hold; InitGlobalTxn of a further one is POLICY_VIOLATION. An id at rest takes about 1 KiB of memory."},
	{Name: "global.transactional.id.expiration.ms", Type: properties.Long, Default: "604800000", Min: 1, Max: maxLong / 1_000_000, Doc: "A global transactional id on which nothing has happened for this long is forgotten; at least an hour, global.transaction.max.timeout.ms and three times global.transaction.scan.interval.ms. None is while a configured cluster cannot be asked."},
	{Name: "global.transaction.scan.interval.ms", Type: properties.Int, Default: "10000", Min: 10, Max: maxInt, Doc: "How often the participants are searched for transactions past their timeout."},
	{Name: "global.transaction.participant.request.timeout.ms", Type: properties.Int, Default: "10000", Min: 100, Max: maxInt, Doc: "How long one request to a participant may take."},
	{Name: "global.transaction.retry.backoff.max.ms", Type: properties.Int, Default: "10000", Min: 10, Max: maxInt, Doc: "The longest pause between two tries to end a participant's transaction."},
	{Name: "global.transaction.state.log.num.partitions", Type: properties.Int, Default: "50", Min: 1, Max: 10000, Doc: "Partitions of __global_transaction_state; it must not change after the topic was created."},
	{Name: "global.transaction.state.log.replication.factor", Type: properties.Int, Default: "3", Min: 1, Max: 1<<15 - 1, Doc: "Replication factor of __global_transaction_state; the embedded broker has one replica."},
	{Name: "global.transaction.state.log.min.isr", Type: properties.Int, Default: "2", Min: 1, Max: 1<<15 - 1, Doc: "min.insync.replicas of __global_transaction_state."},
}

// gtcOnlyKeys are those of a node that is gtc alone.
var gtcOnlyKeys = []properties.Key{
	{Name: "global.transaction.coordinator.session.timeout.ms", Type: properties.Int, Default: "10000", Min: 100, Max: maxInt, Doc: "How long a node may be silent before the other nodes take its partitions over. It must be within group.min.session.timeout.ms (6000 by default) and group.max.session.timeout.ms of the home cluster."},
	{Name: "global.transaction.acl.refresh.interval.ms", Type: properties.Int, Default: "5000", Min: 100, Max: maxInt, Doc: "How often the ACLs of the home cluster are read. Until they were read once every request is refused; when they cannot be read again the last ones stay in force, and the log says so."},
	{Name: "allow.everyone.if.no.acl.found", Type: properties.Boolean, Default: "false", Doc: "Whether a transactional id that no ACL speaks of is free for all; set it as on the home cluster."},
}

// listenerKeys say how listeners authenticate themselves and their clients.
var listenerKeys = append(properties.StoreKeys("this node", "the authorities whose certificates clients may show; needed unless ssl.client.auth is none"), []properties.Key{
	{Name: "ssl.client.auth", Type: properties.String, Default: "none", Values: []string{"none", "requested", "required"}, Doc: "Whether clients show a certificate, whose subject is then their principal: User:CN=.... As in Kafka, a listener that authenticates by SASL obeys only the key with its own prefix."},
	{Name: "sasl.enabled.mechanisms", Type: properties.List, Values: properties.Mechanisms, Doc: "The SASL mechanisms on offer."},
}...)

// oneListenersKeys are the same for one listener: its own go before those of
// all.
func oneListenersKeys() []properties.Key {
	ks := slices.Clone(listenerKeys)
	for i := range ks {
		ks[i].Default, ks[i].Doc = "", "The same for one listener: its name in small letters."
	}
	return ks
}

// clusterPrefix begins the keys of one participating cluster.
const clusterPrefix = "gtc.cluster."

// splitClusterKey gives the alias in a key of one cluster, and the key's name
// in the table.
func splitClusterKey(name string) (alias, template string, ok bool) {
	rest, ok := strings.CutPrefix(name, clusterPrefix)
	if !ok {
		return "", "", false
	}
	alias, suffix, ok := strings.Cut(rest, ".")
	if !ok || alias == "" {
		return "", "", false
	}
	return alias, clusterPrefix + Alias + "." + suffix, true
}

// splitListenerKey does the same for a key of one listener.
func splitListenerKey(name string) (listener, template string, ok bool) {
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	if !ok {
		return "", "", false
	}
	listener, suffix, ok := strings.Cut(rest, ".")
	if !ok || listener == "" || listener == ListenerName {
		return "", "", false
	}
	return listener, listenerPrefix + ListenerName + "." + suffix, true
}

// lookup finds the description of a key as it is written in a file.
func lookup(name string) (Key, bool) {
	if _, template, ok := splitClusterKey(name); ok {
		name = template
	} else if _, template, ok := splitListenerKey(name); ok {
		name = template
	} else if strings.Contains(name, Alias) || strings.Contains(name, ListenerName) {
		return Key{}, false
	}
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

// schema is that of a node of these roles.
func schema(r Roles) properties.Schema {
	return properties.Schema{
		Lookup: func(name string) (properties.Key, bool) {
			k, known := lookup(name)
			k.Default = k.DefaultFor(r)
			return k.Key, known
		},
		Similar: similar,
		Listed:  "--help-config lists those there are",
	}
}

// similar gives the keys as they are written in the place of a mistyped one.
func similar(name string) (names []string) {
	alias, _, isCluster := splitClusterKey(name)
	listener, _, isListener := splitListenerKey(name)
	for _, k := range keys {
		candidate := k.Name
		switch {
		case strings.Contains(candidate, Alias) && !isCluster, strings.Contains(candidate, ListenerName) && !isListener:
			continue
		case isCluster:
			candidate = strings.Replace(candidate, Alias, alias, 1)
		case isListener:
			candidate = strings.Replace(candidate, ListenerName, listener, 1)
		}
		names = append(names, candidate)
	}
	return names
}

func (k Key) appliesTo(r Roles) bool {
	switch k.Role {
	case BrokerRole:
		return r.Broker
	case GTCRole:
		return r.GTC
	case GTCOnly:
		return r.GTC && !r.Broker
	case AnyRole:
		return true
	}
	return true
}

// PrintHelp writes the documentation of every key.
func PrintHelp(w io.Writer) error {
	for _, k := range keys {
		var notes []string
		if k.EmbeddedDefault != "" {
			notes = append(notes, k.EmbeddedDefault+" with the broker role")
		}
		if k.Role != AnyRole {
			notes = append(notes, "role "+string(k.Role))
		}
		if err := k.Help(w, k.Name, notes...); err != nil {
			return err
		}
	}
	return nil
}
