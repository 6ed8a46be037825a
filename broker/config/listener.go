package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// Listener is one address that clients connect to, and what it asks of them.
type Listener struct {
	Name       string
	Bind       HostPort
	Advertised HostPort    // Host is empty when advertised.listeners is not set
	TLS        *ServerTLS  // nil: plain text
	SASL       *ServerSASL // nil: no authentication by SASL
}

// listenerName is what a name may be written with: it becomes a part of keys,
// in small letters.
var listenerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// listeners reads listeners, advertised.listeners and
// listener.security.protocol.map, and what each listener asks for.
func (b *builder) listeners(c *Config) {
	protocolOf := b.protocolMap()
	names := make(map[string]bool)
	for _, entry := range b.List("listeners") {
		name, bind, err := parseListener(entry)
		switch {
		case err != nil:
			b.Refuse("listeners", "%v", err)
			continue
		case names[strings.ToLower(name)]:
			b.Refuse("listeners", "%s is there twice; give the second one another name in listener.security.protocol.map", name)
			continue
		}
		names[strings.ToLower(name)] = true
		protocol, known := protocolOf[name]
		if !known {
			b.Refuse("listeners", "%s is no security protocol; say which it has: listener.security.protocol.map=%s:SASL_SSL", name, name)
			continue
		}
		l := Listener{Name: name, Bind: bind}
		b.secure(&l, protocol)
		c.Listeners = append(c.Listeners, l)
	}
	if len(names) == 0 {
		b.Refuse("listeners", "one listener at least is needed, as PLAINTEXT://host:port")
	}
	b.advertised(c)
	b.checkListenerKeys(c)
	if !b.roles.Broker && len(c.Listeners) > 1 {
		b.Refuse("listeners", "a node that is gtc alone has one listener: the other nodes of its group tell clients one address of it")
	}
}

// protocolMap is listener.security.protocol.map over Kafka's default, in which
// each protocol is its own listener's name.
func (b *builder) protocolMap() map[string]string {
	const key = "listener.security.protocol.map"
	of := make(map[string]string)
	for _, p := range properties.Protocols {
		of[p] = p
	}
	seen := make(map[string]bool)
	for _, entry := range b.List(key) {
		name, protocol, found := strings.Cut(entry, ":")
		switch {
		case !found || !listenerName.MatchString(name):
			b.Refuse(key, "%q is not of the form NAME:PROTOCOL", entry)
		case !slices.Contains(properties.Protocols, protocol):
			b.Refuse(key, "%q is not one of %s", protocol, strings.Join(properties.Protocols, ", "))
		case seen[name]:
			b.Refuse(key, "%s is there twice", name)
		}
		seen[name], of[name] = true, protocol
	}
	return of
}

// advertised reads what clients are told of each listener.
func (b *builder) advertised(c *Config) {
	const key = "advertised.listeners"
	entries := b.List(key)
	for _, entry := range entries {
		name, at, err := parseListener(entry)
		if err != nil {
			b.Refuse(key, "%v", err)
			continue
		}
		i := slices.IndexFunc(c.Listeners, func(l Listener) bool { return l.Name == name })
		switch {
		case i < 0:
			b.Refuse(key, "%s is not in listeners=%s", name, b.Value("listeners"))
		case at.Host == "":
			b.Refuse(key, "%q is no address that a client can connect to; name the host", entry)
		case c.Listeners[i].Advertised.Host != "":
			b.Refuse(key, "%s is there twice", name)
		default:
			c.Listeners[i].Advertised = at
		}
	}
	for _, l := range c.Listeners {
		if len(entries) > 0 && l.Advertised.Host == "" && b.Err() == nil {
			b.Refuse(key, "%s of listeners is missing", l.Name)
		}
	}
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// parseListener reads NAME://host:port. All interfaces are the empty host.
func parseListener(entry string) (name string, at HostPort, err error) {
	name, address, found := strings.Cut(entry, "://")
	if !found || !listenerName.MatchString(name) {
		return "", HostPort{}, fmt.Errorf("%q is not of the form PLAINTEXT://host:port", entry)
	}
	if at, err = parseHostPort(address); err != nil {
		return "", HostPort{}, fmt.Errorf("%q is not host:port with a port from 0 to 65535", address)
	}
	if unspecified(at.Host) {
		at.Host = ""
	}
	return name, at, nil
}
