package config

import (
	"slices"
	"strings"
)

// Type is the type of a key's value, in Kafka's words.
type Type string

// The types.
const (
	Boolean  Type = "boolean"
	Int      Type = "int"
	Long     Type = "long"
	String   Type = "string"
	List     Type = "list"
	Password Type = "password"
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
	Name    string
	Type    Type
	Default string
	// EmbeddedDefault replaces Default on a node that has the broker role.
	EmbeddedDefault string
	Min, Max        int64    // inclusive; for Int and Long
	Values          []string // the only ones allowed; empty: any
	Role            Role
	Doc             string
}

// Secret says that the value is never shown.
func (k Key) Secret() bool { return k.Type == Password }

// DefaultFor gives the default on a node of these roles.
func (k Key) DefaultFor(r Roles) string {
	if r.Broker && k.EmbeddedDefault != "" {
		return k.EmbeddedDefault
	}
	return k.Default
}

// Keys is every key that a node understands, in the order of the help.
func Keys() []Key { return slices.Clone(keys) }

const (
	maxInt  = 1<<31 - 1
	maxLong = 1<<63 - 1

	flushNever = "9223372036854775807"
)

var keys = slices.Concat(nodeKeys, brokerKeys, gtcKeys,
	clientKeys("gtc.cluster."+Alias+".", GTCRole), clientKeys("gtc.home.", GTCOnly))

var nodeKeys = []Key{
	{Name: "process.roles", Type: List, Default: "broker", Values: []string{"broker", "gtc"}, Doc: "What this process is: broker, broker,gtc (the coordinator keeps its log on the embedded broker) or gtc (its log is on the cluster of gtc.home.bootstrap.servers)."},
	{Name: "node.id", Type: Int, Default: "0", Min: 0, Max: maxInt, Doc: "The id of this node. The embedded broker is always node 0; nodes that have the gtc role alone each need their own."},
	{Name: "listeners", Type: List, Default: "PLAINTEXT://localhost:9092", Doc: "The address to listen on, as PLAINTEXT://host:port. An empty host means all interfaces, port 0 one that the system chooses."},
	{Name: "advertised.listeners", Type: List, Doc: "The address that clients are told. By default that of listeners; with all interfaces, the host's name. Port 0 means the port listened on."},
	{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", Min: 1024, Max: maxInt, Doc: "The largest request in bytes; a larger one closes the connection."},
	{Name: "max.connections", Type: Int, Default: "1000", Min: 1, Max: maxInt, Doc: "How many connections are open at most; further ones wait in the listen queue. Kafka's default is 2147483647."},
	{Name: "connections.max.idle.ms", Type: Long, Default: "600000", Min: 1000, Max: maxInt, Doc: "A connection on which nothing is asked and nothing is owed for this long is closed."},
	{Name: "log.level", Type: String, Default: "info", Values: []string{"trace", "debug", "info", "warn", "error"}, Doc: "The least level of what is logged, to standard error."},
}

var brokerKeys = []Key{
	{Name: "cluster.id", Type: String, Role: BrokerRole, Doc: "The id of the embedded cluster. By default a random one is made at the first start and kept in the data directory."},
	{Name: "log.dirs", Type: String, Default: "/tmp/minibroker-logs", Role: BrokerRole, Doc: "The data directory (one). Set to nothing (log.dirs=), everything is kept in memory and lost at the end."},
	{Name: "log.flush.interval.messages", Type: Long, Default: "1", Min: 1, Max: maxLong, Values: []string{"1", flushNever}, Role: BrokerRole, Doc: "1 forces every batch to the disk before it is acknowledged; 9223372036854775807, Kafka's default, leaves that to the operating system: a power failure then loses acknowledged records."},
	{Name: "num.partitions", Type: Int, Default: "1", Min: 1, Max: 10000, Role: BrokerRole, Doc: "Partitions of a topic that is created without a number of its own."},
	{Name: "auto.create.topics.enable", Type: Boolean, Default: "true", Role: BrokerRole, Doc: "Create a topic when a client asks for it."},
	{Name: "transaction.max.timeout.ms", Type: Int, Default: "900000", Min: 1, Max: maxInt, Role: BrokerRole, Doc: "The longest transaction timeout that a client may ask for. 2147483647 lets participants of global transactions opt in with stable API versions."},
	{Name: "transaction.two.phase.commit.enable", Type: Boolean, Default: "false", Role: BrokerRole, Doc: "Let producers ask for transactions without timeout (KIP-939)."},
	{Name: "unstable.api.versions.enable", Type: Boolean, Default: "false", Role: BrokerRole, Doc: "Offer InitProducerId v6, which Kafka 4.1 to 4.4 holds to be unstable."},
}

var gtcKeys = []Key{
	{Name: "gtc.clusters", Type: List, Role: GTCRole, Doc: "Aliases of the participating clusters; each has its own gtc.cluster.<alias>.* keys. On a node that is a broker too, the embedded cluster takes part without being named."},
	{Name: "gtc.cluster." + Alias + ".cluster.id", Type: String, Role: GTCRole, Doc: "The cluster id that this cluster must have; by default any."},
	{Name: "global.transaction.coordinator.session.timeout.ms", Type: Int, Default: "10000", Min: 100, Max: maxInt, Role: GTCOnly, Doc: "How long a node may be silent before the other nodes take its partitions over. It must be within group.min.session.timeout.ms (6000 by default) and group.max.session.timeout.ms of the home cluster."},
	{Name: "metrics.listener", Type: String, Role: GTCRole, Doc: "host:port at which Prometheus finds the coordinator's metrics, under /metrics, without authentication; port 0 means one that the system chooses. By default they are not offered."},
	{Name: "global.transaction.max.timeout.ms", Type: Int, Default: "900000", Min: 1, Max: maxInt, Role: GTCRole, Doc: "The longest timeout of a global transaction that a client may ask for."},
	{Name: "global.transactional.id.expiration.ms", Type: Long, Default: "604800000", Min: 1, Max: maxLong / 1_000_000, Role: GTCRole, Doc: "A global transactional id on which nothing has happened for this long is forgotten."},
	{Name: "global.transaction.scan.interval.ms", Type: Int, Default: "10000", Min: 10, Max: maxInt, Role: GTCRole, Doc: "How often the participants are searched for transactions past their timeout."},
	{Name: "global.transaction.participant.request.timeout.ms", Type: Int, Default: "10000", Min: 100, Max: maxInt, Role: GTCRole, Doc: "How long one request to a participant may take."},
	{Name: "global.transaction.retry.backoff.max.ms", Type: Int, Default: "10000", Min: 10, Max: maxInt, Role: GTCRole, Doc: "The longest pause between two tries to end a participant's transaction."},
	{Name: "global.transaction.state.log.num.partitions", Type: Int, Default: "50", Min: 1, Max: 10000, Role: GTCRole, Doc: "Partitions of __global_transaction_state; it must not change after the topic was created."},
	{Name: "global.transaction.state.log.replication.factor", Type: Int, Default: "3", EmbeddedDefault: "1", Min: 1, Max: 1<<15 - 1, Role: GTCRole, Doc: "Replication factor of __global_transaction_state; the embedded broker has one replica."},
	{Name: "global.transaction.state.log.min.isr", Type: Int, Default: "2", EmbeddedDefault: "1", Min: 1, Max: 1<<15 - 1, Role: GTCRole, Doc: "min.insync.replicas of __global_transaction_state."},
}

// clientKeys are those of a Kafka client under a prefix, as MirrorMaker has
// them.
func clientKeys(prefix string, role Role) []Key {
	ks := []Key{
		{Name: "bootstrap.servers", Type: List, Doc: "Where the cluster is found: host:port, with commas between."},
		{Name: "security.protocol", Type: String, Default: "PLAINTEXT", Values: []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, Doc: "How to speak to the cluster."},
		{Name: "sasl.mechanism", Type: String, Values: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, Doc: "SASL mechanism; needed with SASL_PLAINTEXT and SASL_SSL."},
		{Name: "sasl.jaas.config", Type: Password, Doc: "The login, as in Kafka: <login module> required username=\"...\" password=\"...\";"},
		{Name: "ssl.truststore.type", Type: String, Default: "PEM", Values: []string{"PEM"}, Doc: "Certificates are read as PEM."},
		{Name: "ssl.truststore.location", Type: String, Doc: "PEM file of the certificate authorities to trust; by default those of the system."},
		{Name: "ssl.keystore.location", Type: String, Doc: "PEM file of this client's certificate chain and unencrypted private key."},
		{Name: "ssl.endpoint.identification.algorithm", Type: String, Default: "https", Values: []string{"https", ""}, Doc: "https compares the server's name with its certificate; nothing leaves that out."},
	}
	for i := range ks {
		ks[i].Name, ks[i].Role = prefix+ks[i].Name, role
	}
	return ks
}

// maxNameLen bounds the work of finding a name for a mistyped one.
const maxNameLen = 200

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

// lookup finds the description of a key as it is written in a file.
func lookup(name string) (Key, bool) {
	if _, template, ok := splitClusterKey(name); ok {
		name = template
	} else if strings.Contains(name, Alias) {
		return Key{}, false
	}
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

// nearest gives the valid name that is closest to a mistyped one; empty when
// none is close.
func nearest(name string) string {
	if len(name) > maxNameLen {
		return ""
	}
	best, bestDistance := "", max(2, len(name)/5)+1
	alias, _, isCluster := splitClusterKey(name)
	for _, k := range keys {
		candidate := k.Name
		if strings.Contains(candidate, Alias) {
			if !isCluster {
				continue
			}
			candidate = strings.Replace(candidate, Alias, alias, 1)
		}
		if d := distance(name, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance is Levenshtein's: how many letters to insert, drop or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
