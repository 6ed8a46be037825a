package broker

import (
	"iter"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	maxTimeoutName = "transaction.max.timeout.ms"
	twoPhaseName   = "transaction.two.phase.commit.enable"
)

// staticConfigs are the settings of the broker that kfake does not have or,
// for version 6 of InitProducerId, has with another value. Whether a cluster
// takes part in global transactions is read from them.
func (f *Front) staticConfigs(version int16) []kmsg.DescribeConfigsResponseResourceConfig {
	cfg := f.opts.Config
	config := func(name, value, def string, t kmsg.ConfigType) kmsg.DescribeConfigsResponseResourceConfig {
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value, c.ReadOnly = name, &value, true
		c.Source = kmsg.ConfigSourceStaticBrokerConfig
		if value == def {
			c.Source = kmsg.ConfigSourceDefaultConfig
		}
		c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
		if version >= 3 {
			c.ConfigType = t
		}
		return c
	}
	return []kmsg.DescribeConfigsResponseResourceConfig{
		config(maxTimeoutName, strconv.Itoa(int(cfg.TransactionMaxTimeoutMillis)), "900000", kmsg.ConfigTypeInt),
		config(twoPhaseName, strconv.FormatBool(cfg.TwoPhaseCommit), "false", kmsg.ConfigTypeBoolean),
	}
}

// fronts says that a setting is shown as the front has it, whatever kfake says.
func fronts(name string) bool { return name == maxTimeoutName || name == twoPhaseName }

func (f *Front) routeDescribeConfigs(body *kmsg.DescribeConfigsRequest) plan {
	return plan{edit: editAs(f.showConfigs(body))}
}

// showConfigs puts the front's settings into the description of this broker.
func (f *Front) showConfigs(req *kmsg.DescribeConfigsRequest) func(*kmsg.DescribeConfigsResponse) kmsg.Response {
	return func(resp *kmsg.DescribeConfigsResponse) kmsg.Response {
		for i := range resp.Resources {
			r := &resp.Resources[i]
			if r.ResourceType != kmsg.ConfigResourceTypeBroker || r.ErrorCode != 0 {
				continue
			}
			own := pinned(f.opts.Config)
			r.Configs = slices.DeleteFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool {
				_, pinned := own[c.Name]
				return fronts(c.Name) || r.ResourceName == "" && pinned // the cluster's defaults hold dynamic settings only
			})
			if r.ResourceName == "" {
				continue
			}
			for i := range r.Configs {
				if _, pinned := own[r.Configs[i].Name]; pinned {
					r.Configs[i].ReadOnly, r.Configs[i].Source = true, kmsg.ConfigSourceStaticBrokerConfig
				}
			}
			for _, c := range f.staticConfigs(resp.Version) {
				if asked(req, r.ResourceName, c.Name) {
					r.Configs = append(r.Configs, c)
				}
			}
		}
		return resp
	}
}

// asked says that a request for a broker wants to see one setting.
func asked(req *kmsg.DescribeConfigsRequest, broker, name string) bool {
	for _, r := range req.Resources {
		if r.ResourceType == kmsg.ConfigResourceTypeBroker && r.ResourceName == broker &&
			(len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, name)) {
			return true
		}
	}
	return false
}

// refuseSettings says why settings of a resource must not be changed. One of the
// node's own topics could lose what is in it, and kfake takes any value.
func (f *Front) refuseSettings(of kmsg.ConfigResourceType, name string, settings iter.Seq2[string, *string]) (code int16, why string) {
	var rules map[string]rule
	switch of { //nolint:exhaustive // the others have no settings that matter here
	case kmsg.ConfigResourceTypeTopic:
		if f.internalTopic(name) {
			return kerr.InvalidTopicException.Code, nodesOwn
		}
		code, rules = kerr.InvalidConfig.Code, topicSettings
	case kmsg.ConfigResourceTypeGroupConfig:
		code, rules = kerr.InvalidConfig.Code, groupSettings
	case kmsg.ConfigResourceTypeBroker:
		code, rules = kerr.InvalidRequest.Code, brokerSettings
	default:
		return 0, ""
	}
	for setting, value := range settings {
		if why = refuseSetting(rules, setting, value); why != "" {
			return code, why
		}
	}
	return 0, ""
}

// resource is what settings are of.
type resource struct {
	of   kmsg.ConfigResourceType
	name string
}

func (f *Front) guardIncrementalAlterConfigs(body *kmsg.IncrementalAlterConfigsRequest) refusal {
	seen := make(once[resource])
	return takeOut(&body.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) (kmsg.IncrementalAlterConfigsResponseResource, bool) {
		a, why := kmsg.NewIncrementalAlterConfigsResponseResource(), ""
		a.ResourceType, a.ResourceName, a.ErrorMessage = r.ResourceType, r.ResourceName, &why
		if seen.again(resource{r.ResourceType, r.ResourceName}) {
			a.ErrorCode, why = kerr.InvalidRequest.Code, "each resource must come once" // Kafka's rule, too
			return a, true
		}
		a.ErrorCode, why = f.refuseSettings(r.ResourceType, r.ResourceName, func(yield func(string, *string) bool) {
			for _, c := range r.Configs {
				if !yield(c.Name, c.Value) {
					return
				}
			}
		})
		return a, a.ErrorCode != 0
	}, func(r *kmsg.IncrementalAlterConfigsResponse) *[]kmsg.IncrementalAlterConfigsResponseResource {
		return &r.Resources
	})
}

func (f *Front) guardAlterConfigs(body *kmsg.AlterConfigsRequest) refusal {
	seen := make(once[resource])
	return takeOut(&body.Resources, func(r kmsg.AlterConfigsRequestResource) (kmsg.AlterConfigsResponseResource, bool) {
		a, why := kmsg.NewAlterConfigsResponseResource(), ""
		a.ResourceType, a.ResourceName, a.ErrorMessage = r.ResourceType, r.ResourceName, &why
		if seen.again(resource{r.ResourceType, r.ResourceName}) {
			a.ErrorCode, why = kerr.InvalidRequest.Code, "each resource must come once" // Kafka's rule, too
			return a, true
		}
		a.ErrorCode, why = f.refuseSettings(r.ResourceType, r.ResourceName, func(yield func(string, *string) bool) {
			for _, c := range r.Configs {
				if !yield(c.Name, c.Value) {
					return
				}
			}
		})
		return a, a.ErrorCode != 0
	}, func(r *kmsg.AlterConfigsResponse) *[]kmsg.AlterConfigsResponseResource { return &r.Resources })
}

// routeAlterConfigs changes the older request, which replaces all settings of a
// broker: the node's own are put in again.
func (f *Front) routeAlterConfigs(_ *conn, req *request) plan {
	body := req.body.(*kmsg.AlterConfigsRequest)
	for i := range body.Resources {
		if r := &body.Resources[i]; r.ResourceType == kmsg.ConfigResourceTypeBroker {
			for name, value := range pinned(f.opts.Config) {
				c := kmsg.NewAlterConfigsRequestResourceConfig()
				c.Name, c.Value = name, &value
				r.Configs = append(r.Configs, c)
			}
		}
	}
	return plan{sent: body, raw: req.withBody(body)}
}
