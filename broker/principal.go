package broker

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode/utf8"
)

// anonymous is the principal of a connection without authentication.
const anonymous = "User:ANONYMOUS"

// userType begins every principal: Kafka's default builder makes no others.
const userType = "User:"

// caller is who is behind a connection.
type caller struct {
	principal string // as User:alice
	host      string // IP address
}

// hostOf is the address that ACLs know a client by. They hold Java's way of
// writing one, and Java does not shorten IPv6.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	host, _, _ = strings.Cut(host, "%")
	ip := net.ParseIP(host)
	if ip == nil || ip.To4() != nil {
		return host
	}
	groups := make([]string, 0, net.IPv6len/2)
	for i := 0; i < net.IPv6len; i += 2 {
		groups = append(groups, fmt.Sprintf("%x", int(ip[i])<<8|int(ip[i+1])))
	}
	return strings.Join(groups, ":")
}

// certificatePrincipal is what Kafka's DefaultKafkaPrincipalBuilder makes of a
// certificate's subject: User: and the name as Java writes it by RFC 2253,
// which ACLs are compared with letter by letter.
func certificatePrincipal(rawSubject []byte) (string, error) {
	name, err := distinguishedName(rawSubject)
	if err != nil {
		return "", fmt.Errorf("the certificate's subject cannot be read: %w", err)
	}
	if name == "" {
		return "", errors.New("the certificate's subject is empty: it names nobody")
	}
	return userType + name, nil
}

// attributeNames are those that Java writes as words; all others it writes as
// numbers, with the value in hexadecimal. Those of pkix.Name are not the same.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// relativeNameSET is named so for encoding/asn1, which reads a set into it.
type relativeNameSET []attribute

func distinguishedName(raw []byte) (string, error) {
	var names []relativeNameSET
	if rest, err := asn1.Unmarshal(raw, &names); err != nil || len(rest) > 0 {
		return "", errors.Join(errors.New("not a sequence of names"), err)
	}
	slices.Reverse(names)
	parts := make([]string, len(names))
	for i, name := range names {
		attributes := make([]string, len(name))
		for j, a := range name {
			attributes[j] = a.String()
		}
		parts[i] = strings.Join(attributes, "+")
	}
	return strings.Join(parts, ","), nil
}

func (a attribute) String() string {
	name, known := attributeNames[a.Type.String()]
	var value string
	if _, err := asn1.Unmarshal(a.Value.FullBytes, &value); !known || err != nil || !utf8.ValidString(value) {
		if !known {
			name = a.Type.String()
		}
		return name + "=#" + hex.EncodeToString(a.Value.FullBytes)
	}
	return name + "=" + escapeName(value)
}

func escapeName(value string) string {
	var b strings.Builder
	end := len(strings.TrimRight(value, " "))
	leading := true
	for i, r := range value {
		leading = leading && r == ' '
		switch {
		case r == 0:
			b.WriteString(`\00`)
			continue
		case strings.ContainsRune(`,=+<>#;"\`, r), leading, i >= end:
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
