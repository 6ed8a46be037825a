// Package acl decides by Kafka's ACLs who may do what.
//
// The coordinator's requests are authorised by the ACLs of the home cluster,
// which only that cluster's brokers evaluate. So they are read from there
// (DescribeAcls) and evaluated here, by the rules of Kafka's
// StandardAuthorizerData: a DENY that fits wins over every ALLOW; READ, WRITE,
// DELETE and ALTER imply DESCRIBE, in an ALLOW only; what no ACL speaks of is
// denied, unless allow.everyone.if.no.acl.found says otherwise.
package acl

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TwoPhaseCommit is the operation of KIP-939 that lets a principal have
// transactions without timeout. Kafka has it since 4.0; kmsg does not name it.
const TwoPhaseCommit kmsg.ACLOperation = 15

// ClusterName is the name of the one resource of type CLUSTER.
const ClusterName = "kafka-cluster"

// wildcard stands for every resource, host or user.
const wildcard = "*"

// everyUser is the principal of an ACL that is for all.
const everyUser = "User:*"

// Binding is one ACL.
type Binding struct {
	ResourceType kmsg.ACLResourceType
	ResourceName string
	Pattern      kmsg.ACLResourcePatternType // literal or prefixed; * literally is every name
	Principal    string                      // as User:alice
	Host         string                      // an IP address, or *
	Operation    kmsg.ACLOperation
	Permission   kmsg.ACLPermissionType
}

// Request is what somebody wants to do.
type Request struct {
	Principal string // as User:alice
	Host      string // the IP address of the connection
	Operation kmsg.ACLOperation
	Type      kmsg.ACLResourceType
	Name      string
}

// Rules is a set of ACLs. It does not change; the zero value denies everything
// to everybody.
type Rules struct {
	bindings     []Binding
	superUsers   []string
	allowIfNoACL bool
}

// NewRules makes a set. Super users, as User:alice, may do everything.
func NewRules(bindings []Binding, superUsers []string, allowIfNoACL bool) *Rules {
	return &Rules{bindings: bindings, superUsers: superUsers, allowIfNoACL: allowIfNoACL}
}

// Allows says whether a request may be done.
func (r *Rules) Allows(q Request) bool {
	if slices.Contains(r.superUsers, q.Principal) {
		return true
	}
	spokenOf, allowed := false, false
	for i := range r.bindings {
		b := &r.bindings[i]
		if !b.covers(q.Type, q.Name) {
			continue
		}
		spokenOf = true // by an ACL for whomever: Kafka's rule
		if !b.fits(q) {
			continue
		}
		if b.Permission != kmsg.ACLPermissionTypeAllow {
			return false
		}
		allowed = true
	}
	return allowed || !spokenOf && r.allowIfNoACL
}

func (b *Binding) covers(t kmsg.ACLResourceType, name string) bool {
	if b.ResourceType != t {
		return false
	}
	if b.Pattern == kmsg.ACLResourcePatternTypePrefixed {
		return strings.HasPrefix(name, b.ResourceName)
	}
	return b.ResourceName == name || b.ResourceName == wildcard
}

func (b *Binding) fits(q Request) bool {
	return (b.Principal == q.Principal || b.Principal == everyUser) &&
		(b.Host == q.Host || b.Host == wildcard) &&
		(b.Operation == q.Operation || b.Operation == kmsg.ACLOperationAll ||
			b.Permission == kmsg.ACLPermissionTypeAllow && implies(b.Operation, q.Operation))
}

func implies(has, wants kmsg.ACLOperation) bool {
	switch wants { //nolint:exhaustive // two operations are implied, and no others
	case kmsg.ACLOperationDescribe:
		return has == kmsg.ACLOperationRead || has == kmsg.ACLOperationWrite || has == kmsg.ACLOperationDelete || has == kmsg.ACLOperationAlter
	case kmsg.ACLOperationDescribeConfigs:
		return has == kmsg.ACLOperationAlterConfigs
	default:
		return false
	}
}
