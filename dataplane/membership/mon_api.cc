#include "dataplane/membership/mon_api.h"

namespace sarsen {

const char* name_of(Health health) {
  switch (health) {
    case Health::ok: return "HEALTH_OK";
    case Health::warn: return "HEALTH_WARN";
    case Health::err: return "HEALTH_ERR";
  }
  return "HEALTH_UNKNOWN";
}

}  // namespace sarsen
