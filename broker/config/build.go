package config

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// builder makes the typed configuration out of settings whose values are each
// good alone, and collects what contradicts what.
type builder struct {
	settings settings
	roles    Roles
	errs     []*Error
}

func (b *builder) build() *Config {
	roles := list(b.value("process.roles"))
	b.roles = Roles{Broker: slices.Contains(roles, "broker"), GTC: slices.Contains(roles, "gtc")}
	if len(roles) == 0 || len(roles) > 2 || len(roles) == 2 && roles[0] == roles[1] {
		b.refuse("process.roles", "write broker, broker,gtc or gtc")
	}
	b.checkRoles()

	c := &Config{
		settings: b.settings, Roles: b.roles,
		NodeID: b.int32("node.id"), ClusterID: b.value("cluster.id"),
		LogDir: b.value("log.dirs"), LogLevel: b.value("log.level"),
		NumPartitions: b.int32("num.partitions"), AutoCreateTopics: b.bool("auto.create.topics.enable"),
		SyncWrites:            b.value("log.flush.interval.messages") == "1",
		SocketRequestMaxBytes: b.int32("socket.request.max.bytes"), MaxConnections: b.int32("max.connections"),
		MaxConnectionsPerIP: b.int32("max.connections.per.ip"), MaxInFlight: b.int32("max.in.flight.requests.per.connection"),
		QueuedMaxRequestBytes:       b.number("queued.max.request.bytes"),
		ConnectionsMaxIdle:          b.millis("connections.max.idle.ms"),
		TransactionMaxTimeoutMillis: b.int32("transaction.max.timeout.ms"),
		TwoPhaseCommit:              b.bool("transaction.two.phase.commit.enable"),
		UnstableAPIVersions:         b.bool("unstable.api.versions.enable"),
	}
	if b.roles.Broker && c.NodeID != 0 {
		b.refuse("node.id", "the embedded broker is always node 0; leave the key out, or take process.roles=gtc")
	}
	if strings.Contains(c.LogDir, ",") {
		b.refuse("log.dirs", "one directory only")
	}
	if c.ClusterID != "" && !clusterIDPattern.MatchString(c.ClusterID) {
		b.refuse("cluster.id", "%q: write up to 64 letters, digits, - and _", c.ClusterID)
	}
	b.listeners(c)
	b.authorizer(c)
	if b.roles.GTC {
		b.coordinator(c)
	}
	return c
}

// checkRoles refuses what is set for a role that this node does not have:
// somebody believes it to have an effect.
func (b *builder) checkRoles() {
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		if k, _ := lookup(name); !k.appliesTo(b.roles) {
			b.refuse(name, "belongs to the role %q, and process.roles is %s; remove the key or change process.roles", string(k.Role), b.roles)
		}
	}
}

func (b *builder) coordinator(c *Config) {
	g := &c.GlobalTransactions
	*g = GlobalTransactions{
		MaxTimeout:                b.millis("global.transaction.max.timeout.ms"),
		TransactionalIDExpiration: b.millis("global.transactional.id.expiration.ms"),
		ScanInterval:              b.millis("global.transaction.scan.interval.ms"),
		ParticipantRequestTimeout: b.millis("global.transaction.participant.request.timeout.ms"),
		RetryBackoffMax:           b.millis("global.transaction.retry.backoff.max.ms"),
		MaxParticipants:           b.int32("global.transaction.max.participants"),
		MaxIDsPerPartition:        b.int32("global.transactional.ids.max.per.partition"),
		LogPartitions:             b.int32("global.transaction.state.log.num.partitions"),
		LogReplicationFactor:      b.int16("global.transaction.state.log.replication.factor"),
		LogMinISR:                 b.int16("global.transaction.state.log.min.isr"),
	}
	const replication, minISR = "global.transaction.state.log.replication.factor", "global.transaction.state.log.min.isr"
	switch {
	case b.roles.Broker && g.LogReplicationFactor != 1:
		b.refuse(replication, "the log is on the embedded broker, which has one replica; leave the key out, or take process.roles=gtc with gtc.home.bootstrap.servers")
	case g.LogMinISR > g.LogReplicationFactor:
		b.refuse(minISR, "%d in-sync replicas cannot be had of %d (%s): no decision could ever be written", g.LogMinISR, g.LogReplicationFactor, replication)
	}
	b.expiration(g)
	b.clusters(c)
	if listener := b.value("metrics.listener"); listener != "" {
		hp, err := parseHostPort(listener)
		if err != nil {
			b.refuse("metrics.listener", "%q is not host:port with a port from 0 to 65535", listener)
		}
		c.Metrics = &hp
	}
	if !b.roles.Broker {
		g.SessionTimeout = b.millis("global.transaction.coordinator.session.timeout.ms")
		home := b.cluster("", "gtc.home.")
		c.Home = &home
		if len(c.Clusters) == 0 {
			b.refuse("gtc.clusters", "name the clusters that take part in global transactions")
		}
	}
}

// clientSilence is how long the client library may go without a request to the
// coordinator and then begin a transaction (C-EXP-2).
const clientSilence = time.Hour

// expiration refuses to forget ids that are in use: a client that aborts by
// itself is not heard of for that hour, and then has a transaction open for up to
// its timeout.
func (b *builder) expiration(g *GlobalTransactions) {
	const expiration, maxTimeout = "global.transactional.id.expiration.ms", "global.transaction.max.timeout.ms"
	if least := clientSilence + g.MaxTimeout; g.TransactionalIDExpiration < least {
		b.refuse(expiration, "is less than an hour, for which a living client may be silent, and %s, %d ms: write %d or more",
			maxTimeout, g.MaxTimeout.Milliseconds(), least.Milliseconds())
	}
}

var (
	aliasPattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	clusterIDPattern = aliasPattern
)

func (b *builder) clusters(c *Config) {
	aliases := list(b.value("gtc.clusters"))
	for i, alias := range aliases {
		if !aliasPattern.MatchString(alias) {
			b.refuse("gtc.clusters", "%q is not an alias; write letters, digits, - and _ (no dots: they separate the parts of a key)", alias)
			continue
		}
		if slices.Contains(aliases[:i], alias) {
			b.refuse("gtc.clusters", "%q is there twice", alias)
			continue
		}
		cl := b.cluster(alias, clusterPrefix+alias+".")
		cl.ClusterID = b.value(clusterPrefix + alias + ".cluster.id")
		if j := slices.IndexFunc(c.Clusters, func(o Cluster) bool { return cl.ClusterID != "" && o.ClusterID == cl.ClusterID }); j >= 0 {
			b.refuse(clusterPrefix+alias+".cluster.id", "%q is the cluster id of %s already", cl.ClusterID, c.Clusters[j].Alias)
		}
		c.Clusters = append(c.Clusters, cl)
	}
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		if alias, _, ok := splitClusterKey(name); ok && !slices.Contains(aliases, alias) {
			b.refuse(name, "%q is not in gtc.clusters=%s", alias, strings.Join(aliases, ","))
		}
	}
}

func (b *builder) cluster(alias, prefix string) Cluster {
	cl := Cluster{Alias: alias, BootstrapServers: list(b.value(prefix + "bootstrap.servers"))}
	if len(cl.BootstrapServers) == 0 {
		b.refuse(prefix+"bootstrap.servers", "is missing")
	}
	for _, server := range cl.BootstrapServers {
		if hp, err := parseHostPort(server); err != nil || hp.Host == "" || hp.Port == 0 {
			b.refuse(prefix+"bootstrap.servers", "%q is not host:port", server)
		}
	}
	cl.Security = b.security(prefix)
	return cl
}

func (b *builder) security(prefix string) Security {
	protocol := b.value(prefix + "security.protocol")
	s := Security{
		SecurityProtocol: protocol, TLS: strings.HasSuffix(protocol, "SSL"),
		TrustStore: b.trustStore(under(prefix)), KeyStore: b.keyStore(under(prefix)),
		VerifyHostname: b.value(prefix+"ssl.endpoint.identification.algorithm") == "https",
		SASLMechanism:  b.value(prefix + "sasl.mechanism"),
	}
	sasl := strings.HasPrefix(protocol, "SASL")
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		suffix, ours := strings.CutPrefix(name, prefix)
		switch {
		case !ours:
		case strings.HasPrefix(suffix, "ssl.") && !s.TLS:
			b.refuse(name, "has no effect with %ssecurity.protocol=%s; take SSL or SASL_SSL", prefix, protocol)
		case strings.HasPrefix(suffix, "sasl.") && !sasl:
			b.refuse(name, "has no effect with %ssecurity.protocol=%s; take SASL_PLAINTEXT or SASL_SSL", prefix, protocol)
		}
	}
	if !sasl {
		return s
	}
	if s.SASLMechanism == "" {
		b.refuse(prefix+"sasl.mechanism", "is missing, and %ssecurity.protocol is %s", prefix, protocol)
	}
	jaas := b.value(prefix + "sasl.jaas.config")
	if jaas == "" {
		b.refuse(prefix+"sasl.jaas.config", "is missing, and %ssecurity.protocol is %s", prefix, protocol)
		return s
	}
	var err error
	if s.Username, s.Password, err = parseJAAS(jaas, s.SASLMechanism); err != nil {
		b.refuse(prefix+"sasl.jaas.config", "%v", err)
	}
	return s
}

// refuse notes a problem of a key at the place where it was set, if it was.
func (b *builder) refuse(name, format string, args ...any) {
	a, set := b.settings[name]
	if !set {
		a = assignment{key: name, source: "configuration"}
	}
	b.errs = append(b.errs, a.errorf(format, args...))
}

func (b *builder) value(name string) string {
	if a, set := b.settings[name]; set {
		return a.value
	}
	k, _ := lookup(name)
	return k.DefaultFor(b.roles)
}

// number reads a value that settle has already found to be one in range.
func (b *builder) number(name string) int64 {
	n, err := strconv.ParseInt(b.value(name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("config: the default of %s is not a number", name))
	}
	return n
}

func (b *builder) int32(name string) int32 { return int32(b.number(name)) }
func (b *builder) int16(name string) int16 { return int16(b.number(name)) }
func (b *builder) bool(name string) bool   { return b.value(name) == "true" }

func (b *builder) millis(name string) time.Duration {
	return time.Duration(b.number(name)) * time.Millisecond
}

func parseHostPort(s string) (HostPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return HostPort{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return HostPort{}, err
	}
	return HostPort{Host: host, Port: int32(n)}, nil
}
