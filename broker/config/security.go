package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// KeyStore is a private key and its certificates in PEM: a file with both, or
// the two as text.
type KeyStore struct {
	Location   string
	Key, Chain Secret
	Setting    string // the key that gave it, for messages; empty: there is none
}

// TrustStore is the certificates of authorities in PEM: a file, or text.
type TrustStore struct {
	Location     string
	Certificates Secret
	Setting      string // the key that gave it, for messages; empty: there is none
}

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
	KeyStore   KeyStore
	TrustStore TrustStore
	ClientAuth ClientAuth
}

// ServerSASL is how a listener authenticates by SASL.
type ServerSASL struct {
	Mechanisms []string
	PlainUsers map[string]Secret // of PLAIN, on a node with the broker role
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
		t := ServerTLS{KeyStore: b.keyStore(of), TrustStore: b.trustStore(of), ClientAuth: ClientAuth(b.value(of("ssl.client.auth")))}
		if protocol == "SASL_SSL" && of("ssl.client.auth") == "ssl.client.auth" {
			// Kafka's rule: what is said for all listeners is not meant for
			// those whose clients have a name already.
			t.ClientAuth = ClientAuthNone
		}
		if t.KeyStore.Setting == "" {
			b.refuse(of("ssl.keystore.location"), "is missing, and the listener %s speaks TLS", l.Name)
		}
		if t.ClientAuth != ClientAuthNone && t.TrustStore.Setting == "" {
			b.refuse(of("ssl.truststore.location"), "is missing: nobody says which authorities' certificates clients of %s may show", l.Name)
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
		if _, set := b.settings[prefix+suffix]; set {
			return prefix + suffix
		}
		return suffix
	}
}

// under is the same for the keys of a client, which have one name each.
func under(prefix string) func(suffix string) string {
	return func(suffix string) string { return prefix + suffix }
}

func (b *builder) keyStore(of func(string) string) KeyStore {
	location, key, chain := of("ssl.keystore.location"), of("ssl.keystore.key"), of("ssl.keystore.certificate.chain")
	k := KeyStore{Location: b.value(location), Key: Secret(b.value(key)), Chain: Secret(b.value(chain))}
	switch {
	case k.Location != "" && k.Key+k.Chain != "":
		b.refuse(location, "a file, or %s and %s, not both", key, chain)
	case (k.Key == "") != (k.Chain == ""):
		b.refuse(key, "%s belongs to it: set both or neither", chain)
	case k.Location != "":
		k.Setting = location
	case k.Key != "":
		k.Setting = key
	}
	return k
}

func (b *builder) trustStore(of func(string) string) TrustStore {
	location, certificates := of("ssl.truststore.location"), of("ssl.truststore.certificates")
	t := TrustStore{Location: b.value(location), Certificates: Secret(b.value(certificates))}
	switch {
	case t.Location != "" && t.Certificates != "":
		b.refuse(location, "a file, or %s, not both", certificates)
	case t.Location != "":
		t.Setting = location
	case t.Certificates != "":
		t.Setting = certificates
	}
	return t
}

func (b *builder) serverSASL(listener string, of func(string) string) *ServerSASL {
	s := &ServerSASL{Mechanisms: list(b.value(of("sasl.enabled.mechanisms")))}
	if len(s.Mechanisms) == 0 {
		b.refuse(of("sasl.enabled.mechanisms"), "is missing, and the listener %s authenticates by SASL", listener)
	}
	jaas := listenerPrefix + strings.ToLower(listener) + ".plain.sasl.jaas.config"
	switch text, plain := b.value(jaas), slices.Contains(s.Mechanisms, "PLAIN"); {
	case !b.roles.Broker:
		if p := b.value("gtc.home.security.protocol"); !strings.HasPrefix(p, "SASL") {
			b.refuse("listeners", "%s authenticates by SASL, which this node leaves to its home cluster, and gtc.home.security.protocol is %s; take SASL_PLAINTEXT or SASL_SSL", listener, p)
		}
	case plain && text == "":
		b.refuse(jaas, "is missing, and the listener offers PLAIN")
	case !plain && text != "":
		b.refuse(jaas, "has no effect: PLAIN is not in sasl.enabled.mechanisms of the listener")
	case plain:
		var err error
		if s.PlainUsers, err = parsePlainUsers(text); err != nil {
			b.refuse(jaas, "%v", err)
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
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		suffix := name
		hasTLS, hasSASL, whose := tls, sasl, "no listener"
		if listener, template, ok := splitListenerKey(name); ok {
			l, there := named[listener]
			if !there {
				b.refuse(name, "%q is not in listeners=%s", listener, b.value("listeners"))
				continue
			}
			suffix = strings.TrimPrefix(strings.TrimPrefix(template, listenerPrefix+ListenerName+"."), "plain.")
			hasTLS, hasSASL, whose = l.TLS != nil, l.SASL != nil, "not the listener "+l.Name+", which"
		}
		switch {
		case strings.HasPrefix(suffix, "ssl.") && !hasTLS:
			b.refuse(name, "has no effect: %s speaks TLS", whose)
		case strings.HasPrefix(suffix, "sasl.") && !hasSASL:
			b.refuse(name, "has no effect: %s authenticates by SASL", whose)
		}
	}
	if text := b.value("sasl.scram.credentials"); text != "" {
		var err error
		if c.ScramUsers, err = parseScramUsers(text); err != nil {
			b.refuse("sasl.scram.credentials", "%v", err)
		}
	}
}

// StandardAuthorizer is the name of the only authorizer.
const StandardAuthorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

var principalPattern = regexp.MustCompile(`^[A-Za-z]+:[^\x00]+$`)

// authorizer reads the access control.
func (b *builder) authorizer(c *Config) {
	if b.value("authorizer.class.name") == "" {
		for _, name := range []string{"super.users", "allow.everyone.if.no.acl.found", "global.transaction.acl.refresh.interval.ms"} {
			if _, set := b.settings[name]; set {
				b.refuse(name, "has no effect without authorizer.class.name=%s", StandardAuthorizer)
			}
		}
		return
	}
	a := &Authorizer{}
	// Semicolons, as in Kafka: the name of a certificate has commas.
	for principal := range strings.SplitSeq(b.value("super.users"), ";") {
		principal = strings.TrimSpace(principal)
		if principal == "" {
			continue
		}
		if !principalPattern.MatchString(principal) {
			b.refuse("super.users", "%q is not a principal, as User:alice; semicolons stand between them", principal)
			continue
		}
		a.SuperUsers = append(a.SuperUsers, principal)
		if name, ok := strings.CutPrefix(principal, "User:"); ok {
			a.SuperUserNames = append(a.SuperUserNames, name)
		}
	}
	if !b.roles.Broker {
		a.AllowIfNoACL = b.bool("allow.everyone.if.no.acl.found")
		a.RefreshInterval = b.millis("global.transaction.acl.refresh.interval.ms")
	}
	c.Authorizer = a
}
