package topiclog

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tellWriters says who may write to the log, where it can be known. Whoever may can
// stop a partition of it: see txnlog.ForeignRecordError. The principals of all
// coordinators are among them, and nobody else should be. Super users, whom no ACL
// names, are not seen.
func tellWriters(ctx context.Context, admin *kadm.Client, o *Options) {
	if o.Private {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	principals, err := writers(ctx, admin, o.Topic)
	switch {
	case errors.Is(err, kerr.SecurityDisabled):
		o.Logger.Warn().Str("topic", o.Topic).Msg("the home cluster has no authorizer: everybody who reaches it may write to the log, and whoever does can stop it")
	case err != nil:
		o.Logger.Warn().Err(err).Str("topic", o.Topic).Msg("cannot tell who may write to the log; grant DESCRIBE on the home cluster to have it said")
	case len(principals) > 1 || slices.Contains(principals, "User:*"):
		o.Logger.Warn().Strs("principals", principals).Str("topic", o.Topic).
			Msg("these may write to the log; whoever is not a coordinator must not, because its records can stop a partition")
	}
}

// writers are the principals to whom an ACL gives WRITE on a topic.
func writers(ctx context.Context, admin *kadm.Client, topic string) ([]string, error) {
	filter := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternMatch).Operations(kadm.OpAny).Allow().AllowHosts()
	found, err := admin.DescribeACLs(ctx, filter)
	if err != nil {
		return nil, err
	}
	var principals []string
	for _, result := range found {
		if result.Err != nil {
			return nil, result.Err
		}
		for _, acl := range result.Described {
			writes := acl.Operation == kmsg.ACLOperationWrite || acl.Operation == kmsg.ACLOperationAll
			if acl.Permission == kmsg.ACLPermissionTypeAllow && writes {
				principals = append(principals, acl.Principal)
			}
		}
	}
	slices.Sort(principals)
	return slices.Compact(principals), nil
}
