package config

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// ClientAuth says whether a client has to show a certificate (ssl.client.auth).
type ClientAuth string

// The values of ssl.client.auth.
const (
	ClientAuthNone      ClientAuth = "none"
	ClientAuthRequested ClientAuth = "requested"
	ClientAuthRequired  ClientAuth = "required"
)

// ServerTLS is how a listener speaks TLS.
type ServerTLS struct {
	KeyStore   properties.KeyStore
	TrustStore properties.TrustStore
	ClientAuth ClientAuth
}

// ServerSASL is how a listener authenticates by SASL.
type ServerSASL struct {
	Mechanisms []string
	PlainUsers map[string]properties.Secret // of PLAIN, on a node with the broker role
}

// Authorizer is the access control of a node; without it everybody may do
// everything, as in Kafka.
type Authorizer struct {
	SuperUsers      []string // principals, as User:alice
	AllowIfNoACL    bool
	SuperUserNames  []string      // of those of type User, without the type
	RefreshInterval time.Duration // of a node that is gtc alone
}

// listenerPrefix begins the keys of one listener.
const listenerPrefix = "listener.name."

// secure reads what a listener of a protocol asks for.
func (b *builder) secure(l *Listener, protocol string) {
	of := b.of(l.Name)
	if strings.HasSuffix(protocol, "SSL") {
		t := ServerTLS{KeyStore: b.KeyStore(of), TrustStore: b.TrustStore(of), ClientAuth: ClientAuth(b.Value(of("ssl.client.auth")))}
		if protocol == "SASL_SSL" && of("ssl.client.auth") == "ssl.client.auth" {
			// Kafka's rule: what is said for all listeners is not meant for
			// those whose clients have a name already.
			t.ClientAuth = ClientAuthNone
		}
		if !t.KeyStore.IsSet() {
			b.Refuse(of("ssl.keystore.location"), "is missing, and the listener %s speaks TLS", l.Name)
		}
		if t.ClientAuth != ClientAuthNone && !t.TrustStore.IsSet() {
			b.Refuse(of("ssl.truststore.location"), "is missing: nobody says which authorities' certificates clients of %s may show", l.Name)
		}
		l.TLS = &t
	}
	if strings.HasPrefix(protocol, "SASL") {
		l.SASL = b.serverSASL(l.Name, of)
	}
}

// of gives the name under which a listener's setting is found: with its prefix
// when that is set, and without otherwise.
func (b *builder) of(listener string) func(suffix string) string {
	prefix := listenerPrefix + strings.ToLower(listener) + "."
	return func(suffix string) string {
		if b.IsSet(prefix + suffix) {
			return prefix + suffix
		}
		return suffix
	}
}

func (b *builder) serverSASL(listener string, of func(string) string) *ServerSASL {
	s := &ServerSASL{Mechanisms: b.List(of("sasl.enabled.mechanisms"))}
	if len(s.Mechanisms) == 0 {
		b.Refuse(of("sasl.enabled.mechanisms"), "is missing, and the listener %s authenticates by SASL", listener)
	}
	jaas := listenerPrefix + strings.ToLower(listener) + ".plain.sasl.jaas.config"
	switch text, plain := b.Value(jaas), slices.Contains(s.Mechanisms, "PLAIN"); {
	case !b.roles.Broker:
		if p := b.Value("gtc.home.security.protocol"); !strings.HasPrefix(p, "SASL") {
			b.Refuse("listeners", "%s authenticates by SASL, which this node leaves to its home cluster, and gtc.home.security.protocol is %s; take SASL_PLAINTEXT or SASL_SSL", listener, p)
		}
	case plain && text == "":
		b.Refuse(jaas, "is missing, and the listener offers PLAIN")
	case !plain && text != "":
		b.Refuse(jaas, "has no effect: PLAIN is not in sasl.enabled.mechanisms of the listener")
	case plain:
		var err error
		if s.PlainUsers, err = parsePlainUsers(text); err != nil {
			b.Refuse(jaas, "%v", err)
		}
	}
	return s
}

// checkListenerKeys refuses settings that no listener asks for: somebody
// believes them to have an effect.
func (b *builder) checkListenerKeys(c *Config) {
	named := make(map[string]Listener)
	var tls, sasl bool
	for _, l := range c.Listeners {
		named[strings.ToLower(l.Name)] = l
		tls, sasl = tls || l.TLS != nil, sasl || l.SASL != nil
	}
	for _, name := range b.Names() {
		suffix := name
		hasTLS, hasSASL, whose := tls, sasl, "no listener"
		if listener, template, ok := splitListenerKey(name); ok {
			l, there := named[listener]
			if !there {
				b.Refuse(name, "%q is not in listeners=%s", listener, b.Value("listeners"))
				continue
			}
			suffix = strings.TrimPrefix(strings.TrimPrefix(template, listenerPrefix+ListenerName+"."), "plain.")
			hasTLS, hasSASL, whose = l.TLS != nil, l.SASL != nil, "not the listener "+l.Name+", which"
		}
		switch {
		case strings.HasPrefix(suffix, "ssl.") && !hasTLS:
			b.Refuse(name, "has no effect: %s speaks TLS", whose)
		case strings.HasPrefix(suffix, "sasl.") && !hasSASL:
			b.Refuse(name, "has no effect: %s authenticates by SASL", whose)
		}
	}
	if text := b.Value("sasl.scram.credentials"); text != "" {
		var err error
		if c.ScramUsers, err = parseScramUsers(text); err != nil {
			b.Refuse("sasl.scram.credentials", "%v", err)
		}
	}
}

// StandardAuthorizer is the name of the only authorizer.
const StandardAuthorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

var principalPattern = regexp.MustCompile(`^[A-Za-z]+:[^\x00]+$`)

// authorizer reads the access control.
func (b *builder) authorizer(c *Config) {
	if b.Value("authorizer.class.name") == "" {
		for _, name := range []string{"super.users", "allow.everyone.if.no.acl.found", "global.transaction.acl.refresh.interval.ms"} {
			if b.IsSet(name) {
				b.Refuse(name, "has no effect without authorizer.class.name=%s", StandardAuthorizer)
			}
		}
		return
	}
	a := &Authorizer{}
	// Semicolons, as in Kafka: the name of a certificate has commas.
	for principal := range strings.SplitSeq(b.Value("super.users"), ";") {
		principal = strings.TrimSpace(principal)
		if principal == "" {
			continue
		}
		if !principalPattern.MatchString(principal) {
			b.Refuse("super.users", "%q is not a principal, as User:alice; semicolons stand between them", principal)
			continue
		}
		a.SuperUsers = append(a.SuperUsers, principal)
		if name, ok := strings.CutPrefix(principal, "User:"); ok {
			a.SuperUserNames = append(a.SuperUserNames, name)
		}
	}
	if !b.roles.Broker {
		a.AllowIfNoACL = b.Bool("allow.everyone.if.no.acl.found")
		a.RefreshInterval = b.Millis("global.transaction.acl.refresh.interval.ms")
	}
	c.Authorizer = a
}
