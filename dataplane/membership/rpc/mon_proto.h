// The values of membership/mon_api.h as messages of the Mon service. Only for .cc files: the
// generated header is heavy.
#pragma once

#include "dataplane/base/result.h"
#include "dataplane/membership/mon_api.h"
#include "dataplane/membership/proto/mon.pb.h"

namespace sarsen {

void to_proto(const ImageName& name, v1::ImageName& message);
void to_proto(const AttachRequest& request, v1::AttachImageRequest& message);
void to_proto(const DetachRequest& request, v1::DetachImageRequest& message);
void to_proto(const OsdBoot& boot, v1::BootOsdRequest& message);
void to_proto(const OsdReport& report, v1::ReportOsdRequest& message);
void to_proto(const ClusterStatus& status, v1::GetStatusResponse& message);

ImageName from_proto(const v1::ImageName& message);
DetachRequest from_proto(const v1::DetachImageRequest& message);
// Error: MonError::garbled.
Result<AttachRequest> from_proto(const v1::AttachImageRequest& message);
Result<OsdBoot> from_proto(const v1::BootOsdRequest& message);
Result<OsdReport> from_proto(const v1::ReportOsdRequest& message);
Result<ClusterStatus> from_proto(const v1::GetStatusResponse& message);

}  // namespace sarsen
