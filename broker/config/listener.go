package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// listeners reads listeners and advertised.listeners: one of each, in plain
// text.
func (b *builder) listeners(c *Config) {
	var err error
	if c.Listener, err = parseListener(b.value("listeners")); err != nil {
		b.refuse("listeners", "%v", err)
	}
	advertised := b.value("advertised.listeners")
	if advertised == "" {
		return
	}
	if c.Advertised, err = parseListener(advertised); err != nil {
		b.refuse("advertised.listeners", "%v", err)
		return
	}
	if host := c.Advertised.Host; host == "" || unspecified(host) {
		b.refuse("advertised.listeners", "%q is no address that a client can connect to; name the host", advertised)
	}
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

func parseListener(value string) (HostPort, error) {
	entries := list(value)
	if len(entries) != 1 {
		return HostPort{}, fmt.Errorf("%q: exactly one listener is needed, as PLAINTEXT://host:port", value)
	}
	protocol, address, found := strings.Cut(entries[0], "://")
	if !found {
		return HostPort{}, fmt.Errorf("%q is not of the form PLAINTEXT://host:port", value)
	}
	if protocol != "PLAINTEXT" {
		return HostPort{}, fmt.Errorf("%q: the listener's protocol must be PLAINTEXT", protocol)
	}
	hp, err := parseHostPort(address)
	if err != nil {
		return HostPort{}, fmt.Errorf("%q is not host:port with a port from 0 to 65535", address)
	}
	if unspecified(hp.Host) {
		hp.Host = ""
	}
	return hp, nil
}

// jaasOption is one name="value" of a login; a quote in a value is escaped.
var jaasOption = regexp.MustCompile(`\s+([A-Za-z0-9_.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))`)

// parseJAAS reads <module> required username="..." password="...";. Errors do
// not repeat the text, which holds the password.
func parseJAAS(text, mechanism string) (username string, password Secret, err error) {
	module := "org.apache.kafka.common.security.scram.ScramLoginModule"
	if mechanism == "PLAIN" {
		module = "org.apache.kafka.common.security.plain.PlainLoginModule"
	}
	body, ended := strings.CutSuffix(strings.TrimSpace(text), ";")
	if !ended {
		return "", "", errors.New("must end in a semicolon")
	}
	rest, ok := strings.CutPrefix(body, module)
	if !ok {
		return "", "", fmt.Errorf("must begin with %s, the login module of %s", module, mechanism)
	}
	trimmed := strings.TrimLeft(rest, " \t\r\n")
	options, ok := strings.CutPrefix(trimmed, "required")
	if !ok || trimmed == rest {
		return "", "", errors.New(`must have the word "required" after the login module`)
	}
	values := make(map[string]string)
	left := jaasOption.ReplaceAllStringFunc(options, func(option string) string {
		m := jaasOption.FindStringSubmatch(option)
		values[m[1]] = unescape(m[2]) + m[3]
		return ""
	})
	if strings.TrimSpace(left) != "" {
		return "", "", errors.New(`has text that is not name="value"`)
	}
	if values["username"] == "" || values["password"] == "" {
		return "", "", errors.New("must give username and password")
	}
	return values["username"], Secret(values["password"]), nil
}

func unescape(s string) string {
	var b strings.Builder
	escaped := false
	for _, r := range s {
		if r == '\\' && !escaped {
			escaped = true
			continue
		}
		escaped = false
		b.WriteRune(r)
	}
	return b.String()
}
