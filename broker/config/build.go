package config

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// builder makes the typed configuration out of settings whose values are each
// good alone, and collects what contradicts what.
type builder struct {
	*properties.Settings
	roles Roles
}

func (b *builder) build() *Config {
	roles := b.List("process.roles")
	if len(roles) == 0 || len(roles) > 2 || len(roles) == 2 && roles[0] == roles[1] {
		b.Refuse("process.roles", "write broker, broker,gtc or gtc")
	}
	b.checkRoles()

	c := &Config{
		settings: b.Settings, Roles: b.roles,
		NodeID: b.Int32("node.id"), ClusterID: b.Value("cluster.id"),
		LogDir: b.Value("log.dirs"), LogLevel: b.Value("log.level"),
		NumPartitions: b.Int32("num.partitions"), AutoCreateTopics: b.Bool("auto.create.topics.enable"),
		SyncWrites:            b.Value("log.flush.interval.messages") == "1",
		SegmentBytes:          b.Int32("log.segment.bytes"),
		GroupMaxSize:          b.Int32("group.max.size"),
		SocketRequestMaxBytes: b.Int32("socket.request.max.bytes"), MaxConnections: b.Int32("max.connections"),
		MaxConnectionsPerIP: b.Int32("max.connections.per.ip"), MaxInFlight: b.Int32("max.in.flight.requests.per.connection"),
		QueuedMaxRequestBytes:       b.Int64("queued.max.request.bytes"),
		ConnectionsMaxIdle:          b.Millis("connections.max.idle.ms"),
		TransactionMaxTimeoutMillis: b.Int32("transaction.max.timeout.ms"),
		TwoPhaseCommit:              b.Bool("transaction.two.phase.commit.enable"),
		UnstableAPIVersions:         b.Bool("unstable.api.versions.enable"),
	}
	if b.roles.Broker && c.NodeID != 0 {
		b.Refuse("node.id", "the embedded broker is always node 0; leave the key out, or take process.roles=gtc")
	}
	if strings.Contains(c.LogDir, ",") {
		b.Refuse("log.dirs", "one directory only")
	}
	if c.ClusterID != "" && !clusterIDPattern.MatchString(c.ClusterID) {
		b.Refuse("cluster.id", "%q: write up to 64 letters, digits, - and _", c.ClusterID)
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
	for _, name := range b.Names() {
		if k, _ := lookup(name); !k.appliesTo(b.roles) {
			b.Refuse(name, "belongs to the role %q, and process.roles is %s; remove the key or change process.roles", string(k.Role), b.roles)
		}
	}
}

func (b *builder) coordinator(c *Config) {
	g := &c.GlobalTransactions
	*g = GlobalTransactions{
		MaxTimeout:                b.Millis("global.transaction.max.timeout.ms"),
		TransactionalIDExpiration: b.Millis("global.transactional.id.expiration.ms"),
		ScanInterval:              b.Millis("global.transaction.scan.interval.ms"),
		ParticipantRequestTimeout: b.Millis("global.transaction.participant.request.timeout.ms"),
		RetryBackoffMax:           b.Millis("global.transaction.retry.backoff.max.ms"),
		MaxParticipants:           b.Int32("global.transaction.max.participants"),
		MaxIDsPerPartition:        b.Int32("global.transactional.ids.max.per.partition"),
		LogPartitions:             b.Int32("global.transaction.state.log.num.partitions"),
		LogReplicationFactor:      b.Int16("global.transaction.state.log.replication.factor"),
		LogMinISR:                 b.Int16("global.transaction.state.log.min.isr"),
	}
	const replication, minISR = "global.transaction.state.log.replication.factor", "global.transaction.state.log.min.isr"
	switch {
	case b.roles.Broker && g.LogReplicationFactor != 1:
		b.Refuse(replication, "the log is on the embedded broker, which has one replica; leave the key out, or take process.roles=gtc with gtc.home.bootstrap.servers")
	case g.LogMinISR > g.LogReplicationFactor:
		b.Refuse(minISR, "%d in-sync replicas cannot be had of %d (%s): no decision could ever be written", g.LogMinISR, g.LogReplicationFactor, replication)
	}
	b.expiration(g)
	b.clusters(c)
	if listener := b.Value("metrics.listener"); listener != "" {
		hp, err := parseHostPort(listener)
		if err != nil {
			b.Refuse("metrics.listener", "%q is not host:port with a port from 0 to 65535", listener)
		}
		c.Metrics = &hp
	}
	if !b.roles.Broker {
		g.SessionTimeout = b.Millis("global.transaction.coordinator.session.timeout.ms")
		home := b.cluster("", "gtc.home.")
		c.Home = &home
		if len(c.Clusters) == 0 {
			b.Refuse("gtc.clusters", "name the clusters that take part in global transactions")
		}
	}
}

// clientSilence is how long the client library may go without a request to the
// coordinator and then begin a transaction (C-EXP-2).
const clientSilence = time.Hour

// looksOld is how many scan intervals old the last look at a cluster may be that
// still counts (C-EXP-1).
const looksOld = 3

// expiration refuses to forget ids that are in use: a client that aborts by
// itself is not heard of for that hour, and then has a transaction open for up to
// its timeout, of which looks that are three intervals old show nothing.
func (b *builder) expiration(g *GlobalTransactions) {
	const (
		expiration   = "global.transactional.id.expiration.ms"
		maxTimeout   = "global.transaction.max.timeout.ms"
		scanInterval = "global.transaction.scan.interval.ms"
	)
	if least := clientSilence + g.MaxTimeout + looksOld*g.ScanInterval; g.TransactionalIDExpiration < least {
		b.Refuse(expiration, "is less than an hour, for which a living client may be silent, %s, %d ms, and three times %s, %d ms: write %d or more",
			maxTimeout, g.MaxTimeout.Milliseconds(), scanInterval, g.ScanInterval.Milliseconds(), least.Milliseconds())
	}
}

var (
	aliasPattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	clusterIDPattern = aliasPattern
)

func (b *builder) clusters(c *Config) {
	aliases := b.List("gtc.clusters")
	for i, alias := range aliases {
		if !aliasPattern.MatchString(alias) {
			b.Refuse("gtc.clusters", "%q is not an alias; write letters, digits, - and _ (no dots: they separate the parts of a key)", alias)
			continue
		}
		if slices.Contains(aliases[:i], alias) {
			b.Refuse("gtc.clusters", "%q is there twice", alias)
			continue
		}
		cl := b.cluster(alias, clusterPrefix+alias+".")
		cl.ClusterID = b.Value(clusterPrefix + alias + ".cluster.id")
		if j := slices.IndexFunc(c.Clusters, func(o Cluster) bool { return cl.ClusterID != "" && o.ClusterID == cl.ClusterID }); j >= 0 {
			b.Refuse(clusterPrefix+alias+".cluster.id", "%q is the cluster id of %s already", cl.ClusterID, c.Clusters[j].Alias)
		}
		c.Clusters = append(c.Clusters, cl)
	}
	for _, name := range b.Names() {
		if alias, _, ok := splitClusterKey(name); ok && !slices.Contains(aliases, alias) {
			b.Refuse(name, "%q is not in gtc.clusters=%s", alias, strings.Join(aliases, ","))
		}
	}
}

func (b *builder) cluster(alias, prefix string) Cluster {
	return Cluster{Alias: alias, BootstrapServers: b.Servers(prefix + "bootstrap.servers"), Security: b.Security(prefix)}
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
