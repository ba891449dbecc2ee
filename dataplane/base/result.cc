#include "dataplane/base/result.h"

namespace sarsen {

std::string Error::message() const {
  std::string text(category_->name());
  text += ": ";
  text += category_->sentence(code_);
  if (detail_ && !detail_->empty()) {
    text += " (";
    text += *detail_;
    text += ')';
  }
  return text;
}

}  // namespace sarsen
