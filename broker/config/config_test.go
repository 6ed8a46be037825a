package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

const twoClusters = `
process.roles=broker,gtc
gtc.clusters=us, eu
gtc.cluster.us.bootstrap.servers=us1:9092,us2:9092
gtc.cluster.eu.bootstrap.servers=[::1]:9093
`

func parse(t *testing.T, file string, overrides ...string) (*config.Config, error) {
	t.Helper()
	return config.Parse("server.properties", strings.NewReader(file), overrides)
}

func mustParse(t *testing.T, file string, overrides ...string) *config.Config {
	t.Helper()
	c, err := parse(t, file, overrides...)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return c
}

func TestDefaultsAreThoseDocumented(t *testing.T) {
	c := mustParse(t, "")
	for name, pair := range map[string][2]any{
		"roles":                   {c.Roles, config.Roles{Broker: true}},
		"listener":                {c.Listeners[0].Bind, config.HostPort{Host: "localhost", Port: 9092}},
		"log.dirs":                {c.LogDir, "/tmp/minibroker-logs"},
		"fsync":                   {c.SyncWrites, true},
		"num.partitions":          {c.NumPartitions, int32(1)},
		"auto.create":             {c.AutoCreateTopics, true},
		"socket.request.max":      {c.SocketRequestMaxBytes, int32(104857600)},
		"transaction.max.timeout": {c.TransactionMaxTimeoutMillis, int32(900000)},
		"two.phase":               {c.TwoPhaseCommit, false},
		"unstable":                {c.UnstableAPIVersions, false},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestEveryDefaultIsAllowed(t *testing.T) {
	for _, k := range config.Keys() {
		if k.Doc == "" {
			t.Errorf("%s has no documentation", k.Name)
		}
		for _, r := range []config.Roles{{Broker: true}, {GTC: true}} {
			def := k.DefaultFor(r)
			if def == "" || strings.Contains(k.Name, config.Alias) || strings.Contains(k.Name, config.ListenerName) {
				continue
			}
			var e *properties.Error
			_, err := parse(t, "", k.Name+"="+def)
			if errors.As(err, &e) && (strings.Contains(e.Problem, "not") || strings.Contains(e.Problem, "range")) && e.Key == k.Name {
				t.Errorf("%s=%s: %s", k.Name, def, e.Problem)
			}
		}
	}
}

func TestParticipantsAndCoordinatorSettings(t *testing.T) {
	c := mustParse(t, twoClusters+`
gtc.cluster.eu.cluster.id=eu-id
gtc.cluster.eu.security.protocol=SASL_SSL
gtc.cluster.eu.sasl.mechanism=SCRAM-SHA-256
gtc.cluster.eu.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="gtc" password="a\\"${b};=c";
gtc.cluster.eu.ssl.truststore.location=/etc/eu.pem
global.transaction.max.timeout.ms=60000
`)
	if len(c.Clusters) != 2 || c.Clusters[0].Alias != "us" || c.Clusters[1].Alias != "eu" {
		t.Fatalf("clusters: %+v", c.Clusters)
	}
	if got := c.Clusters[0].BootstrapServers; !slices.Equal(got, []string{"us1:9092", "us2:9092"}) {
		t.Errorf("bootstrap servers of us: %v", got)
	}
	eu := c.Clusters[1]
	if eu.ClusterID != "eu-id" || !eu.Security.TLS || !eu.Security.VerifyHostname ||
		eu.Security.SASLMechanism != "SCRAM-SHA-256" || eu.Security.Username != "gtc" || eu.Security.TrustStore.Location != "/etc/eu.pem" {
		t.Errorf("eu: %+v", eu)
	}
	if got, want := string(eu.Security.Password), `a"${b};=c`; got != want {
		t.Errorf("password %q, want %q", got, want)
	}
	g := c.GlobalTransactions
	if g.MaxTimeout != time.Minute || g.LogPartitions != 50 || g.LogReplicationFactor != 1 || g.LogMinISR != 1 ||
		g.TransactionalIDExpiration != 7*24*time.Hour || g.ScanInterval != 10*time.Second {
		t.Errorf("coordinator: %+v", g)
	}
	if c.Home != nil {
		t.Error("a broker keeps its log itself and has no other home cluster")
	}
}

func TestCoordinatorAloneHasAHomeCluster(t *testing.T) {
	c := mustParse(t, "process.roles=gtc\nnode.id=7\ngtc.clusters=us\ngtc.cluster.us.bootstrap.servers=us:9092\ngtc.home.bootstrap.servers=home:9092")
	if c.Home == nil || c.Home.BootstrapServers[0] != "home:9092" || c.NodeID != 7 {
		t.Errorf("%+v", c)
	}
	if g := c.GlobalTransactions; g.LogReplicationFactor != 3 || g.LogMinISR != 2 {
		t.Errorf("log on a real cluster: %+v", g)
	}
}

func TestOverridesWin(t *testing.T) {
	c := mustParse(t, "num.partitions=3", "num.partitions=4", "listeners=PLAINTEXT://0.0.0.0:0", "log.dirs=")
	if c.NumPartitions != 4 || c.Listeners[0].Bind != (config.HostPort{}) || c.LogDir != "" {
		t.Errorf("%d %+v %q", c.NumPartitions, c.Listeners, c.LogDir)
	}
}

func TestBadConfigurationIsNamedWithItsLine(t *testing.T) {
	const (
		jaas          = "gtc.cluster.us.sasl.jaas.config="
		plainListener = "listeners=SASL_PLAINTEXT://x:1\nsasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_plaintext.plain.sasl.jaas.config="
		gtcOnly       = "process.roles=gtc\ngtc.clusters=us\ngtc.cluster.us.bootstrap.servers=us:9092\ngtc.home.bootstrap.servers=home:9092\n"
	)
	sasl := twoClusters + "gtc.cluster.us.security.protocol=SASL_SSL\ngtc.cluster.us.sasl.mechanism=PLAIN\n"
	for name, c := range map[string]struct {
		file     string
		override string
		key      string
		line     int
		says     string
	}{
		"unknown key":              {file: "\nnum.partition=3", key: "num.partition", line: 2, says: "did you mean num.partitions?"},
		"unknown override":         {override: "listener=PLAINTEXT://:1", key: "listener", says: "did you mean listeners?"},
		"nothing near":             {file: "zookeeper.connect=x", key: "zookeeper.connect", line: 1, says: "--help-config"},
		"unknown key of a cluster": {file: twoClusters + "gtc.cluster.us.bootstrp.servers=x:1", key: "gtc.cluster.us.bootstrp.servers", line: 6, says: "did you mean gtc.cluster.us.bootstrap.servers?"},
		"placeholder as a key":     {file: "gtc.cluster.<alias>x=1", key: "gtc.cluster.<alias>x", line: 1, says: "unknown key"},
		"not a number":             {file: "num.partitions=abc", key: "num.partitions", line: 1, says: "1 to 10000"},
		"out of range":             {file: "num.partitions=0", key: "num.partitions", line: 1, says: "1 to 10000"},
		"overflow":                 {file: "transaction.max.timeout.ms=2147483648", key: "transaction.max.timeout.ms", line: 1, says: "1 to 2147483647"},
		"not a boolean":            {file: "auto.create.topics.enable=yes", key: "auto.create.topics.enable", line: 1, says: "neither true nor false"},
		"flush now and then":       {file: "log.flush.interval.messages=100", key: "log.flush.interval.messages", line: 1, says: "out of range"},
		"unknown role":             {file: "process.roles=controller", key: "process.roles", line: 1, says: "broker, gtc"},
		"no role":                  {file: "process.roles=", key: "process.roles", line: 1, says: "broker,gtc"},
		"role twice":               {file: "process.roles=gtc,gtc", key: "process.roles", line: 1, says: "broker,gtc"},
		"broker that is not 0":     {file: "node.id=1", key: "node.id", line: 1, says: "always node 0"},
		"strange cluster id":       {file: "cluster.id=a b", key: "cluster.id", line: 1, says: "letters, digits"},
		"two directories":          {file: "log.dirs=/a,/b", key: "log.dirs", line: 1, says: "one directory"},
		"two listeners of a name":  {file: "listeners=PLAINTEXT://:1,PLAINTEXT://:2", key: "listeners", line: 1, says: "twice"},
		"listener without scheme":  {file: "listeners=localhost:9092", key: "listeners", line: 1, says: "PLAINTEXT://host:port"},
		"listener with bad port":   {file: "listeners=PLAINTEXT://x:65536", key: "listeners", line: 1, says: "0 to 65535"},
		"TLS without a key":        {file: "listeners=SSL://x:1", key: "ssl.keystore.location", says: "is missing, and the listener SSL speaks TLS"},
		"a key without its chain":  {file: "listeners=SSL://x:1\nssl.keystore.key=geheim", key: "ssl.keystore.key", line: 2, says: "ssl.keystore.certificate.chain belongs to it"},
		"a key twice":              {file: "listeners=SSL://x:1\nssl.keystore.location=/k\nssl.keystore.key=geheim\nssl.keystore.certificate.chain=c", key: "ssl.keystore.location", line: 2, says: "not both"},
		"mTLS without authorities": {file: "listeners=SSL://x:1\nssl.keystore.location=/k\nssl.client.auth=required", key: "ssl.truststore.location", says: "nobody says"},
		"SASL without mechanisms":  {file: "listeners=SASL_PLAINTEXT://x:1", key: "sasl.enabled.mechanisms", says: "is missing"},
		"PLAIN without users":      {file: "listeners=SASL_PLAINTEXT://x:1\nsasl.enabled.mechanisms=PLAIN", key: "listener.name.sasl_plaintext.plain.sasl.jaas.config", says: "is missing"},
		"PLAIN user, no password":  {file: plainListener + `org.apache.kafka.common.security.plain.PlainLoginModule required user_geheim="";`, key: "listener.name.sasl_plaintext.plain.sasl.jaas.config", line: 3, says: "without name or password"},
		"PLAIN without a user":     {file: plainListener + `org.apache.kafka.common.security.plain.PlainLoginModule required username="geheim";`, key: "listener.name.sasl_plaintext.plain.sasl.jaas.config", line: 3, says: "names no user"},
		"SCRAM user malformed":     {file: "listeners=SASL_PLAINTEXT://x:1\nsasl.enabled.mechanisms=SCRAM-SHA-256\nsasl.scram.credentials=alice:geheim", key: "sasl.scram.credentials", line: 3, says: "entry 1"},
		"ssl key, plain listener":  {file: "ssl.client.auth=none", key: "ssl.client.auth", line: 1, says: "no listener speaks TLS"},
		"sasl key, plain listener": {file: "listeners=PLAINTEXT://x:1\nlistener.name.plaintext.sasl.enabled.mechanisms=PLAIN", key: "listener.name.plaintext.sasl.enabled.mechanisms", line: 2, says: "not the listener PLAINTEXT"},
		"key of no listener":       {file: "listener.name.client.ssl.client.auth=none", key: "listener.name.client.ssl.client.auth", line: 1, says: `"client" is not in listeners`},
		"mistyped listener key":    {file: "listener.name.plaintext.ssl.client.aut=none", key: "listener.name.plaintext.ssl.client.aut", line: 1, says: "did you mean listener.name.plaintext.ssl.client.auth?"},
		"protocol unknown":         {file: "listener.security.protocol.map=A:TLS", key: "listener.security.protocol.map", line: 1, says: "not one of PLAINTEXT"},
		"advertised stranger":      {file: "advertised.listeners=SSL://h:1", key: "advertised.listeners", line: 1, says: "not in listeners"},
		"advertised in part":       {file: "listeners=PLAINTEXT://:1,A://:2\nlistener.security.protocol.map=A:PLAINTEXT\nadvertised.listeners=A://h:2", key: "advertised.listeners", line: 3, says: "PLAINTEXT of listeners is missing"},
		"gtc with two listeners":   {file: gtcOnly + "listeners=PLAINTEXT://:1,A://:2\nlistener.security.protocol.map=A:PLAINTEXT", key: "listeners", line: 5, says: "has one listener"},
		"gtc relays to nobody":     {file: gtcOnly + "listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=PLAIN", key: "listeners", line: 5, says: "leaves to its home cluster"},
		"gtc has no users":         {file: gtcOnly + "sasl.scram.credentials=x", key: "sasl.scram.credentials", line: 5, says: "belongs to the role"},
		"another authorizer":       {file: "authorizer.class.name=my.Authorizer", key: "authorizer.class.name", line: 1, says: "StandardAuthorizer"},
		"super users of nothing":   {file: "super.users=User:a", key: "super.users", line: 1, says: "no effect"},
		"a super user's name":      {file: "authorizer.class.name=" + config.StandardAuthorizer + "\nsuper.users=User:a;alice", key: "super.users", line: 2, says: `"alice" is not a principal`},
		"free for all in kfake":    {file: "authorizer.class.name=" + config.StandardAuthorizer + "\nallow.everyone.if.no.acl.found=true", key: "allow.everyone.if.no.acl.found", line: 2, says: "belongs to the role"},
		"listener without a map":   {file: "listeners=CLIENT://x:1", key: "listeners", line: 1, says: "listener.security.protocol.map=CLIENT:"},
		"advertised nowhere":       {file: "advertised.listeners=PLAINTEXT://0.0.0.0:9092", key: "advertised.listeners", line: 1, says: "name the host"},
		"role not had":             {file: "global.transaction.max.timeout.ms=1", key: "global.transaction.max.timeout.ms", line: 1, says: "process.roles is broker"},
		"cluster without the role": {file: "gtc.cluster.us.bootstrap.servers=x:1", key: "gtc.cluster.us.bootstrap.servers", line: 1, says: "process.roles is broker"},
		"home of a broker":         {file: twoClusters + "gtc.home.bootstrap.servers=x:1", key: "gtc.home.bootstrap.servers", line: 6, says: "gtc without broker"},
		"no home":                  {file: "process.roles=gtc\ngtc.clusters=us\ngtc.cluster.us.bootstrap.servers=x:1", key: "gtc.home.bootstrap.servers", says: "missing"},
		"no participants":          {file: "process.roles=gtc\ngtc.home.bootstrap.servers=x:1", key: "gtc.clusters", says: "name the clusters"},
		"cluster not named":        {file: twoClusters + "gtc.cluster.ap.bootstrap.servers=x:1", key: "gtc.cluster.ap.bootstrap.servers", line: 6, says: `"ap" is not in gtc.clusters=us,eu`},
		"cluster twice":            {file: "process.roles=broker,gtc\ngtc.clusters=us,us\ngtc.cluster.us.bootstrap.servers=x:1", key: "gtc.clusters", line: 2, says: "twice"},
		"bad alias":                {file: "process.roles=broker,gtc\ngtc.clusters=u.s", key: "gtc.clusters", line: 2, says: "no dots"},
		"no servers":               {file: "process.roles=broker,gtc\ngtc.clusters=us", key: "gtc.cluster.us.bootstrap.servers", says: "missing"},
		"server without port":      {file: "process.roles=broker,gtc\ngtc.clusters=us\ngtc.cluster.us.bootstrap.servers=x", key: "gtc.cluster.us.bootstrap.servers", line: 3, says: "host:port"},
		"same cluster id":          {file: twoClusters + "gtc.cluster.us.cluster.id=a\ngtc.cluster.eu.cluster.id=a", key: "gtc.cluster.eu.cluster.id", line: 7, says: "us already"},
		"an id in use forgotten":   {file: "process.roles=broker,gtc\nglobal.transaction.max.timeout.ms=60000\nglobal.transactional.id.expiration.ms=3689999", key: "global.transactional.id.expiration.ms", line: 3, says: "write 3690000 or more"},
		"too few replicas":         {file: "process.roles=gtc\ngtc.clusters=us\ngtc.cluster.us.bootstrap.servers=x:1\ngtc.home.bootstrap.servers=x:1\nglobal.transaction.state.log.replication.factor=1", key: "global.transaction.state.log.min.isr", says: "2 in-sync replicas cannot be had of 1"},
		"replicas of one broker":   {file: twoClusters + "global.transaction.state.log.replication.factor=3", key: "global.transaction.state.log.replication.factor", line: 6, says: "one replica"},
		"ssl key without TLS":      {file: twoClusters + "gtc.cluster.us.ssl.truststore.location=/x", key: "gtc.cluster.us.ssl.truststore.location", line: 6, says: "no effect"},
		"sasl key without SASL":    {file: twoClusters + "gtc.cluster.us.sasl.mechanism=PLAIN", key: "gtc.cluster.us.sasl.mechanism", line: 6, says: "no effect"},
		"no mechanism":             {file: twoClusters + "gtc.cluster.us.security.protocol=SASL_SSL", key: "gtc.cluster.us.sasl.mechanism", says: "missing"},
		"no login":                 {file: sasl, key: "gtc.cluster.us.sasl.jaas.config", says: "missing"},
		"login of another module":  {file: sasl + jaas + `org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="geheim";`, key: "gtc.cluster.us.sasl.jaas.config", line: 8, says: "PlainLoginModule"},
		"login without semicolon":  {file: sasl + jaas + `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim"`, key: "gtc.cluster.us.sasl.jaas.config", line: 8, says: "semicolon"},
	} {
		t.Run(name, func(t *testing.T) {
			var overrides []string
			if c.override != "" {
				overrides = []string{c.override}
			}
			_, err := parse(t, c.file, overrides...)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Fatalf("the error shows the password: %v", err)
			}
			for _, e := range errorsIn(err) {
				if e.Key == c.key && e.Line == c.line && strings.Contains(e.Error(), c.says) {
					return
				}
			}
			t.Errorf("want key %q, line %d, %q; got:\n%v", c.key, c.line, c.says, err)
		})
	}
}

func errorsIn(err error) []*properties.Error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var out []*properties.Error
	for _, e := range joined.Unwrap() {
		var ce *properties.Error
		if errors.As(e, &ce) {
			out = append(out, ce)
		}
	}
	return out
}

func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	_, err := parse(t, "num.partitions=0\nfoo=1\nauto.create.topics.enable=maybe")
	if n := len(errorsIn(err)); n != 3 {
		t.Errorf("%d errors, want 3: %v", n, err)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	c := mustParse(t, twoClusters+`
gtc.cluster.us.security.protocol=SASL_PLAINTEXT
gtc.cluster.us.sasl.mechanism=PLAIN
gtc.cluster.us.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";
`)
	if string(c.Clusters[0].Security.Password) != "geheim" {
		t.Fatal("the password was not read")
	}
	var printed bytes.Buffer
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := printed.String() + string(asJSON) + fmt.Sprintf("%v %+v %#v %v %#v", c, *c, c, c.Clusters, c.Clusters)
	if strings.Contains(shown, "geheim") {
		t.Errorf("the password is shown:\n%s", shown)
	}
	if !strings.Contains(printed.String(), "gtc.cluster.us.sasl.jaas.config="+properties.Hidden) {
		t.Errorf("the effective configuration lacks the hidden key:\n%s", printed.String())
	}
}

func TestEffectiveConfigurationSaysWhereValuesComeFrom(t *testing.T) {
	c := mustParse(t, "\nnum.partitions=3\nlog.level=debug", "log.level=warn")
	var b bytes.Buffer
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"num.partitions=": "3 # server.properties:2",
		"log.level=":      "warn # --override",
		"node.id=":        "0 # default",
	} {
		found := ""
		for line := range strings.Lines(b.String()) {
			if rest, ok := strings.CutPrefix(line, key); ok {
				found = strings.Join(strings.Fields(rest), " ")
			}
		}
		if found != want {
			t.Errorf("%s%q, want %q", key, found, want)
		}
	}
	if strings.Contains(b.String(), "gtc.") {
		t.Errorf("a broker shows keys of the GTC:\n%s", b.String())
	}
}

func TestHelpNamesEveryKey(t *testing.T) {
	var b bytes.Buffer
	if err := config.PrintHelp(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range config.Keys() {
		if !strings.Contains(b.String(), k.Name+" (") {
			t.Errorf("no help for %s", k.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(twoClusters)
	f.Add("a\\\n=b\\u00e9\n#x\n:=")
	f.Fuzz(func(t *testing.T, file string) {
		c, err := config.Parse("f", strings.NewReader(file), nil)
		if (c == nil) == (err == nil) {
			t.Fatalf("neither a configuration nor an error, or both: %v %v", c, err)
		}
	})
}

func TestListenersAndWhatTheyAskFor(t *testing.T) {
	c := mustParse(t, `
listeners=PLAINTEXT://127.0.0.1:1,CLIENT://:2,OPS://[::1]:3
listener.security.protocol.map=CLIENT:SASL_SSL,OPS:SSL
advertised.listeners=PLAINTEXT://a:1,CLIENT://b:2,OPS://c:0
ssl.keystore.location=/all.pem
ssl.truststore.location=/ca.pem
ssl.client.auth=required
listener.name.client.ssl.keystore.location=/client.pem
sasl.enabled.mechanisms=PLAIN, SCRAM-SHA-512
listener.name.client.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="admin" password="x" user_alice="a;\\"b" user_bob-1="c";
sasl.scram.credentials=SCRAM-SHA-512=[name=carol,password=d,]e];SCRAM-SHA-256=[name=dan,password=f]
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:CN=ops,O=x; User:alice;
`)
	if len(c.Listeners) != 3 {
		t.Fatalf("%d listeners", len(c.Listeners))
	}
	plain, client, ops := c.Listeners[0], c.Listeners[1], c.Listeners[2]
	if plain.TLS != nil || plain.SASL != nil || plain.Bind.Port != 1 || plain.Advertised != (config.HostPort{Host: "a", Port: 1}) {
		t.Errorf("PLAINTEXT: %+v", plain)
	}
	if client.TLS == nil || client.TLS.KeyStore.Location != "/client.pem" || client.TLS.ClientAuth != config.ClientAuthNone {
		t.Errorf("CLIENT, whose clients have a name already: %+v", client.TLS)
	}
	if client.SASL == nil || !slices.Equal(client.SASL.Mechanisms, []string{"PLAIN", "SCRAM-SHA-512"}) ||
		len(client.SASL.PlainUsers) != 2 || string(client.SASL.PlainUsers["alice"]) != `a;"b` || string(client.SASL.PlainUsers["bob-1"]) != "c" {
		t.Errorf("CLIENT: %+v", client.SASL)
	}
	if ops.SASL != nil || ops.TLS == nil || ops.TLS.KeyStore.Location != "/all.pem" || ops.TLS.ClientAuth != config.ClientAuthRequired || ops.Bind.Host != "::1" {
		t.Errorf("OPS: %+v", ops)
	}
	if len(c.ScramUsers) != 2 || c.ScramUsers[0].Name != "carol" || string(c.ScramUsers[0].Password) != "d,]e" || c.ScramUsers[1].Mechanism != "SCRAM-SHA-256" {
		t.Errorf("users of SCRAM: %q", c.ScramUsers)
	}
	if a := c.Authorizer; a == nil || !slices.Equal(a.SuperUsers, []string{"User:CN=ops,O=x", "User:alice"}) || !slices.Equal(a.SuperUserNames, []string{"CN=ops,O=x", "alice"}) {
		t.Errorf("authorizer: %+v", c.Authorizer)
	}
	var printed bytes.Buffer
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"listener.name.client.ssl.keystore.location=/client.pem", "listener.name.client.plain.sasl.jaas.config=" + properties.Hidden, "sasl.scram.credentials=" + properties.Hidden} {
		if !strings.Contains(printed.String(), line) {
			t.Errorf("the printed configuration lacks %s", line)
		}
	}
}
