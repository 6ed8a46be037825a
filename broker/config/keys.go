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

// ListenerName stands in Key.Name for the name of a listener, in small letters.
const ListenerName = "<listener>"

// Keys is every key that a node understands, in the order of the help.
func Keys() []Key { return slices.Clone(keys) }

const (
	maxInt  = 1<<31 - 1
	maxLong = 1<<63 - 1

	flushNever = "9223372036854775807"
)

var keys = slices.Concat(nodeKeys, listenerKeys(""), listenerKeys(listenerPrefix+ListenerName+"."), brokerKeys, gtcKeys,
	clientKeys("gtc.cluster."+Alias+".", GTCRole), clientKeys("gtc.home.", GTCOnly))

var nodeKeys = []Key{
	{Name: "process.roles", Type: List, Default: "broker", Values: []string{"broker", "gtc"}, Doc: "What this process is: broker, broker,gtc (the coordinator keeps its log on the embedded broker) or gtc (its log is on the cluster of gtc.home.bootstrap.servers)."},
	{Name: "node.id", Type: Int, Default: "0", Min: 0, Max: maxInt, Doc: "The id of this node. The embedded broker is always node 0; nodes that have the gtc role alone each need their own."},
	{Name: "listeners", Type: List, Default: "PLAINTEXT://localhost:9092", Doc: "The addresses to listen on, as NAME://host:port with commas between; a node that is gtc alone has one. An empty host means all interfaces, port 0 one that the system chooses. The first one is what the other nodes of a group tell clients."},
	{Name: "advertised.listeners", Type: List, Doc: "The address that the clients of each listener are told. By default that of listeners; with all interfaces, the host's name. Port 0 means the port listened on."},
	{Name: "listener.security.protocol.map", Type: List, Doc: "NAME:PROTOCOL for each listener that is not named by its protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."},
	{Name: "authorizer.class.name", Type: String, Values: []string{StandardAuthorizer}, Doc: "Turns access control on: ACLs of the embedded broker, or, on a node that is gtc alone, those of the home cluster. By default everybody may do everything."},
	{Name: "super.users", Type: String, Doc: "Principals that may do everything, with semicolons between: User:admin;User:CN=ops."},
	{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", Min: 1024, Max: maxInt, Doc: "The largest request in bytes; a larger one closes the connection."},
	{Name: "max.connections", Type: Int, Default: "1000", Min: 1, Max: maxInt, Doc: "How many connections are open at most; further ones wait in the listen queue. Kafka's default is 2147483647."},
	{Name: "max.connections.per.ip", Type: Int, Default: "2147483647", Min: 1, Max: maxInt, Doc: "How many connections one address may have open; a further one is closed at once."},
	{Name: "max.in.flight.requests.per.connection", Type: Int, Default: "64", Min: 1, Max: 1000, Doc: "How many answers a connection may have outstanding; further requests are not read until the client has taken some."},
	{Name: "queued.max.request.bytes", Type: Long, Default: "33554432", Min: 1 << 20, Max: maxLong, Doc: "How much memory requests of more than 64 KiB (Produce) or 2 KiB (all others) may take together, from the first byte to the answer; what does not fit waits. A Produce counts twice its bytes; any other 128 times until it is read, because arrays grow, and then what it takes. Kafka's default is none."},
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
	{Name: listenerPrefix + ListenerName + ".plain.sasl.jaas.config", Type: Password, Role: BrokerRole, Doc: "The users of PLAIN at one listener, as in Kafka: org.apache.kafka.common.security.plain.PlainLoginModule required user_<name>=\"<password>\" ...; A node that is gtc alone asks its home cluster instead."},
	{Name: "sasl.scram.credentials", Type: Password, Role: BrokerRole, Doc: "Users of SCRAM to begin with, as in kafka-storage's --add-scram and with semicolons between: SCRAM-SHA-256=[name=alice,password=...]. One that is there already keeps its password; later changes go through kafka-configs."},
	{Name: "unstable.api.versions.enable", Type: Boolean, Default: "false", Role: BrokerRole, Doc: "Offer InitProducerId v6, which Kafka 4.1 to 4.4 holds to be unstable."},
}

var gtcKeys = []Key{
	{Name: "gtc.clusters", Type: List, Role: GTCRole, Doc: "Aliases of the participating clusters; each has its own gtc.cluster.<alias>.* keys. On a node that is a broker too, the embedded cluster takes part without being named."},
	{Name: "gtc.cluster." + Alias + ".cluster.id", Type: String, Role: GTCRole, Doc: "The cluster id that this cluster must have; by default any."},
	{Name: "global.transaction.coordinator.session.timeout.ms", Type: Int, Default: "10000", Min: 100, Max: maxInt, Role: GTCOnly, Doc: "How long a node may be silent before the other nodes take its partitions over. It must be within group.min.session.timeout.ms (6000 by default) and group.max.session.timeout.ms of the home cluster."},
	{Name: "metrics.listener", Type: String, Role: GTCRole, Doc: "host:port at which Prometheus finds the coordinator's metrics, under /metrics, without authentication; port 0 means one that the system chooses. By default they are not offered."},
	{Name: "global.transaction.max.timeout.ms", Type: Int, Default: "900000", Min: 1, Max: maxInt, Role: GTCRole, Doc: "The longest timeout of a global transaction that a client may ask for."},
	{Name: "global.transaction.max.participants", Type: Int, Default: "32", Min: 1, Max: 32, Role: GTCRole, Doc: "How many clusters a session may name; more are INVALID_REQUEST."},
	{Name: "global.transactional.ids.max.per.partition", Type: Int, Default: "20000", Min: 1, Max: maxInt, Role: GTCRole, Doc: "How many global transactional ids a partition of the log may hold; InitGlobalTxn of a further one is POLICY_VIOLATION. An id at rest takes about 1 KiB of memory."},
	{Name: "global.transactional.id.expiration.ms", Type: Long, Default: "604800000", Min: 1, Max: maxLong / 1_000_000, Role: GTCRole, Doc: "A global transactional id on which nothing has happened for this long is forgotten; at least an hour and global.transaction.max.timeout.ms."},
	{Name: "global.transaction.scan.interval.ms", Type: Int, Default: "10000", Min: 10, Max: maxInt, Role: GTCRole, Doc: "How often the participants are searched for transactions past their timeout."},
	{Name: "global.transaction.participant.request.timeout.ms", Type: Int, Default: "10000", Min: 100, Max: maxInt, Role: GTCRole, Doc: "How long one request to a participant may take."},
	{Name: "global.transaction.retry.backoff.max.ms", Type: Int, Default: "10000", Min: 10, Max: maxInt, Role: GTCRole, Doc: "The longest pause between two tries to end a participant's transaction."},
	{Name: "global.transaction.state.log.num.partitions", Type: Int, Default: "50", Min: 1, Max: 10000, Role: GTCRole, Doc: "Partitions of __global_transaction_state; it must not change after the topic was created."},
	{Name: "global.transaction.state.log.replication.factor", Type: Int, Default: "3", EmbeddedDefault: "1", Min: 1, Max: 1<<15 - 1, Role: GTCRole, Doc: "Replication factor of __global_transaction_state; the embedded broker has one replica."},
	{Name: "global.transaction.acl.refresh.interval.ms", Type: Int, Default: "5000", Min: 100, Max: maxInt, Role: GTCOnly, Doc: "How often the ACLs of the home cluster are read. Until they were read once every request is refused; when they cannot be read again the last ones stay in force, and the log says so."},
	{Name: "allow.everyone.if.no.acl.found", Type: Boolean, Default: "false", Role: GTCOnly, Doc: "Whether a transactional id that no ACL speaks of is free for all; set it as on the home cluster."},
	{Name: "global.transaction.state.log.min.isr", Type: Int, Default: "2", EmbeddedDefault: "1", Min: 1, Max: 1<<15 - 1, Role: GTCRole, Doc: "min.insync.replicas of __global_transaction_state."},
}

// listenerKeys say how listeners authenticate themselves and their clients: all
// of them, or with the prefix one of them.
func listenerKeys(prefix string) []Key {
	ks := slices.Concat(storeKeys("this node", "the authorities whose certificates clients may show; needed unless ssl.client.auth is none"), []Key{
		{Name: "ssl.client.auth", Type: String, Default: "none", Values: []string{"none", "requested", "required"}, Doc: "Whether clients show a certificate, whose subject is then their principal: User:CN=.... As in Kafka, a listener that authenticates by SASL obeys only the key with its own prefix."},
		{Name: "sasl.enabled.mechanisms", Type: List, Values: saslMechanisms, Doc: "The SASL mechanisms on offer."},
	})
	for i := range ks {
		ks[i].Name = prefix + ks[i].Name
		if prefix != "" {
			ks[i].Default, ks[i].Doc = "", "The same for one listener: its name in small letters."
		}
	}
	return ks
}

var saslMechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// storeKeys are the certificates of whoever speaks TLS.
func storeKeys(own, trusted string) []Key {
	return []Key{
		{Name: "ssl.keystore.type", Type: String, Default: "PEM", Values: []string{"PEM"}, Doc: "Keys and certificates are read as PEM."},
		{Name: "ssl.keystore.location", Type: String, Doc: "PEM file of the certificate chain and the unencrypted private key of " + own + "."},
		{Name: "ssl.keystore.key", Type: Password, Doc: "The unencrypted private key itself, in PEM, in place of a file."},
		{Name: "ssl.keystore.certificate.chain", Type: Password, Doc: "The certificate chain itself, in PEM, in place of a file."},
		{Name: "ssl.truststore.type", Type: String, Default: "PEM", Values: []string{"PEM"}, Doc: "Certificates are read as PEM."},
		{Name: "ssl.truststore.location", Type: String, Doc: "PEM file of " + trusted + "."},
		{Name: "ssl.truststore.certificates", Type: Password, Doc: "The same as text, in place of a file."},
	}
}

// clientKeys are those of a Kafka client under a prefix, as MirrorMaker has
// them.
func clientKeys(prefix string, role Role) []Key {
	ks := slices.Concat([]Key{
		{Name: "bootstrap.servers", Type: List, Doc: "Where the cluster is found: host:port, with commas between."},
		{Name: "security.protocol", Type: String, Default: "PLAINTEXT", Values: protocols, Doc: "How to speak to the cluster."},
		{Name: "sasl.mechanism", Type: String, Values: saslMechanisms, Doc: "SASL mechanism; needed with SASL_PLAINTEXT and SASL_SSL."},
		{Name: "sasl.jaas.config", Type: Password, Doc: "The login, as in Kafka: <login module> required username=\"...\" password=\"...\";"},
		{Name: "ssl.endpoint.identification.algorithm", Type: String, Default: "https", Values: []string{"https", ""}, Doc: "https compares the server's name with its certificate; nothing leaves that out."},
	}, storeKeys("this client", "the authorities to trust; by default those of the system"))
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

// nearest gives the valid name that is closest to a mistyped one; empty when
// none is close.
func nearest(name string) string {
	if len(name) > maxNameLen {
		return ""
	}
	best, bestDistance := "", max(2, len(name)/5)+1
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
